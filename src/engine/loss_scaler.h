// Dynamic loss scaling for float16 (Micikevicius et al. 2018, arXiv:1710.03740): the gradient of the loss is multiplied
// by a scale, so that small gradients of activations do not vanish below 2^-24. Reduced gradients are divided by it in
// float32, together with clipping. The rule is that of PyTorch's GradScaler:
//
//     a step whose gradients are not all finite   is skipped, and the scale falls:  scale *= backoff_factor
//     growth_interval steps on end that are       let it grow:                      scale *= growth_factor
//
// Whether gradients are finite is read off the clipping norm, which is summed over all ranks, so every rank does the
// same.
#pragma once

#include "engine/step.h"

#include <cstdint>
#include <optional>

namespace echelon {

class LossScaler {
 public:
  explicit LossScaler(const RunConfig& config);

  /// As after earlier steps; a scale only if this run has one.
  void resume(std::optional<double> scale, std::int64_t num_finite, std::int64_t num_skipped);

  /// Of the next step; none: its gradients are not scaled.
  [[nodiscard]] std::optional<double> scale() const { return scale_; }
  [[nodiscard]] std::int64_t num_skipped() const { return num_skipped_; }
  /// Steps since the scale changed.
  [[nodiscard]] std::int64_t num_finite() const { return num_finite_; }
  /// After a training step. Throws Failure if gradients overflowed at a scale that is none: then the run diverged.
  void ended_step(const StepResult& result);

 private:
  GradScalerConfig config_;
  std::optional<double> scale_;
  std::int64_t num_finite_ = 0;  // steps since the scale changed
  std::int64_t num_skipped_ = 0;
};

}  // namespace echelon
