// How long steps of a layout take here: what a prediction is held against.
#pragma once

#include "spec/config/run_config.h"

#include <vector>

namespace echelon {

/// Seconds of `num_steps` steps on weights and tokens that are made up. One more runs before them, which touches memory
/// first and is not among them, and with training.cuda_graphs another one, which is recorded. Throws Error for what
/// `train` refuses, and Failure if a rank fails.
[[nodiscard]] std::vector<double> time_steps(const RunConfig& config, std::int64_t num_steps);

}  // namespace echelon
