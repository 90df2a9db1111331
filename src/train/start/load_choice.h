// What checkpoint.load means in the folder of a run.
#pragma once

#include "checkpoint/state/step_folders.h"
#include "spec/config/run_config.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace echelon {

/// At most one of `step` and `other_run` is set; without both it is auto, latest or none.
struct LoadChoice {
  std::optional<std::int64_t> step = {};                // of the run's own, also where its folder was named
  std::optional<std::filesystem::path> other_run = {};  // what is no choice, no step, and no step's folder of the run
};
[[nodiscard]] LoadChoice load_choice(const RunConfig& config);

/// The folder from which a run with these checkpoints of its own resumes first, if it may; empty: it starts.
[[nodiscard]] std::filesystem::path first_to_load(const RunConfig& config, const std::vector<SavedStep>& saved);

}  // namespace echelon
