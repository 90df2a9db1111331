// The float64 numbers of a step that lie beside the tensors: what the step is given, what every rank sums, and what the
// host reads at the end. All of them are uploaded when a step begins and read when it ends, so that between the two the
// host waits for nothing.
#pragma once

#include "ops/ops.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

struct StepScalars {
  double num_targets = 0;     // valid targets of this rank, then of all
  double loss = 0;            // sum of this rank's losses, then of all: on ranks whose losses count
  double num_stopping = 0;    // ranks that were asked to stop
  double grad_norm = 0;       // before clipping
  double squares = 0;         // of this rank's gradients, then of all
  double uncounted_loss = 0;  // what another rank forms too, and counts
  double loss_scale = 1;      // of float16
  AdamWScalars adamw = {};
};
inline constexpr std::int64_t num_scalars = sizeof(StepScalars) / sizeof(double);

[[nodiscard]] constexpr std::int64_t scalar_at(std::size_t offset_bytes) {
  return static_cast<std::int64_t>(offset_bytes / sizeof(double));
}

/// Elements of the rank's scalars buffer. What is summed over ranks together lies together, and so does what the host
/// reads at the end.
inline constexpr std::int64_t count_scalar = scalar_at(offsetof(StepScalars, num_targets)),
                              report_scalar = scalar_at(offsetof(StepScalars, loss)),
                              norm_scalar = scalar_at(offsetof(StepScalars, grad_norm)),
                              clip_scalar = scalar_at(offsetof(StepScalars, squares)),
                              uncounted_loss_scalar = scalar_at(offsetof(StepScalars, uncounted_loss)),
                              loss_scale_scalar = scalar_at(offsetof(StepScalars, loss_scale)),
                              adamw_scalar = scalar_at(offsetof(StepScalars, adamw)),
                              grad_scale_scalar = adamw_scalar + scalar_at(offsetof(AdamWScalars, grad_scale));
inline constexpr std::int64_t num_count_scalars = 1, num_report_scalars = 2, num_clip_scalars = 1;
inline constexpr std::int64_t num_read_scalars = norm_scalar + 1;  // from the first one on

}  // namespace echelon
