// The steps of the checkpoints in a folder, oldest first.
#pragma once

#include "checkpoint/state/step_folders.h"

namespace echelon {

inline std::vector<std::int64_t> steps_in(const std::filesystem::path& base) {
  std::vector<std::int64_t> steps;
  for (const SavedStep& saved : saved_steps(base)) steps.push_back(saved.step);
  return steps;
}

}  // namespace echelon
