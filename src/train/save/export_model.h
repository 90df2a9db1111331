// Writes the model that a run has trained as a Hugging Face folder, or its adapters as one of PEFT's.
#pragma once

#include "checkpoint/state/digest.h"
#include "engine/rank_run.h"
#include "train/agreed_failure.h"

#include <filesystem>
#include <optional>

namespace echelon {

struct ModelExport {
  std::filesystem::path folder;
  std::int64_t step = 0;
  std::optional<Digest> base = {};  // of a run with adapters, which alone are written
};

/// Throws Error if no folder can be written for the model, or if its tokenizer has more tokens than the model.
void require_exportable(const RunConfig& config);

/// Collective, between steps; `host` is the mesh of the same ranks for host memory. The folder replaces one of the same
/// name with a model. None if all ranks have written.
[[nodiscard]] std::optional<SharedFailure> export_model(const ModelExport& wanted, const RunConfig& config,
                                                        RankRun& run, Ops& ops, Mesh& mesh, Mesh& host);

}  // namespace echelon
