// The few float64 numbers that every rank sums in a step.
#pragma once

#include <cstdint>

namespace echelon {

inline constexpr std::int64_t num_count_scalars = 1;   // valid targets
inline constexpr std::int64_t num_clip_scalars = 1;    // squares of gradients
inline constexpr std::int64_t num_report_scalars = 2;  // loss sum; ranks that were asked to stop
/// Offsets in the rank's scalars buffer: the microbatches' loss sum, and what is summed.
inline constexpr std::int64_t loss_scalar = 0, count_scalar = 1, clip_scalar = 2, report_scalar = 3;
inline constexpr std::int64_t num_scalars = report_scalar + num_report_scalars;

}  // namespace echelon
