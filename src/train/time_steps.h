// Measures the steps of a layout here, to compare with a prediction.
#pragma once

#include "spec/config/run_config.h"

#include <vector>

namespace echelon {

/// Seconds of `num_steps` steps on synthetic weights and tokens. An unmeasured step before them touches memory first;
/// with training.cuda_graphs a second one is recorded. Throws Error for configs that `train` refuses, and Failure if a
/// rank fails.
[[nodiscard]] std::vector<double> time_steps(const RunConfig& config, std::int64_t num_steps);

}  // namespace echelon
