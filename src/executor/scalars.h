// The float64 scalars of a step: its inputs, the sums over ranks, and the results that the host reads. They are
// uploaded at the start of a step and read at its end, so the host waits for nothing in between.
#pragma once

#include "ops/ops.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

struct StepScalars {
  double num_targets = 0;     // valid targets of this rank, then of all
  double loss = 0;            // sum of this rank's losses, then of all: on ranks whose losses count
  double requests = 0;        // what was asked of this rank, then the sum of all ranks
  double num_saved = 0;       // 1 if this rank's part of a checkpoint is written, then the sum of all ranks
  double grad_norm = 0;       // before clipping
  double squares = 0;         // of this rank's gradients, then of all
  double uncounted_loss = 0;  // a loss that another rank computes too, and counts
  double loss_scale = 1;      // of float16
  AdamWScalars adamw = {};
};
inline constexpr std::int64_t num_scalars = sizeof(StepScalars) / sizeof(double);

[[nodiscard]] constexpr std::int64_t scalar_at(std::size_t offset_bytes) {
  return static_cast<std::int64_t>(offset_bytes / sizeof(double));
}

/// Elements of the rank's scalars buffer. Values that are summed in one all-reduce are adjacent, and so are those that
/// the host reads at the end.
inline constexpr std::int64_t count_scalar = scalar_at(offsetof(StepScalars, num_targets)),
                              report_scalar = scalar_at(offsetof(StepScalars, loss)),
                              norm_scalar = scalar_at(offsetof(StepScalars, grad_norm)),
                              clip_scalar = scalar_at(offsetof(StepScalars, squares)),
                              uncounted_loss_scalar = scalar_at(offsetof(StepScalars, uncounted_loss)),
                              loss_scale_scalar = scalar_at(offsetof(StepScalars, loss_scale)),
                              adamw_scalar = scalar_at(offsetof(StepScalars, adamw)),
                              grad_scale_scalar = adamw_scalar + scalar_at(offsetof(AdamWScalars, grad_scale));
inline constexpr std::int64_t num_count_scalars = 1, num_report_scalars = 3, num_clip_scalars = 1;
inline constexpr std::int64_t num_read_scalars = norm_scalar + 1;  // from the first one on

}  // namespace echelon
