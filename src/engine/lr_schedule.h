// The learning rate of a step: linear warm-up, then cosine, linear or warm-up-stable-decay (WSD; Hu et al. 2024,
// arXiv:2404.06395). The decay ends after the last step, as in torchtitan, Megatron-LM and transformers: with a rate of
// 0 the last step would change nothing.
#pragma once

#include "spec/config/run_config.h"

#include <cstdint>

namespace echelon {

/// `step` counts from 1 to config.training.steps; the step after the last one would have lr * min_lr_factor, unless the
/// decay is none. The schedule starts after step `first_step`.
[[nodiscard]] double learning_rate(const RunConfig& config, std::int64_t step, std::int64_t first_step = 0);

}  // namespace echelon
