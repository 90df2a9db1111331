// Zero bubble's first step (Qi et al. 2023, arXiv:2401.10241, section 2): a backward is the gradient of the input,
// which another rank waits for, and that of the weights, which nobody waits for and which may fill a bubble.
#pragma once

#include "schedule/schedule.h"

namespace echelon {

/// The order with each backward split: its input part stays where it was, its weight part comes right behind the input
/// part of the backward that is `delay` later; those that are left come at the end.
[[nodiscard]] ComputeOrder put_off_weights(const ComputeOrder& order, int delay);

}  // namespace echelon
