// Writes the model that a run has trained as a Hugging Face folder.
#pragma once

#include "engine/rank_run.h"
#include "train/agreed_failure.h"

#include <filesystem>

namespace echelon {

/// Collective, between steps; `host` is the mesh of the same ranks for host memory. The folder replaces one of the same
/// name with a model. None if all ranks have written.
[[nodiscard]] std::optional<SharedFailure> export_model(const std::filesystem::path& folder, const RunConfig& config,
                                                        std::int64_t step, RankRun& run, Ops& ops, Mesh& mesh,
                                                        Mesh& host);

}  // namespace echelon
