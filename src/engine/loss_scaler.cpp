#include "engine/loss_scaler.h"

#include "base/error.h"

#include <limits>

namespace echelon {

LossScaler::LossScaler(const RunConfig& config) : config_(config.grad_scaler) {
  if (config.training.dtype == DType::float16) scale_ = config_.init_scale;
}

void LossScaler::resume(std::optional<double> scale, std::int64_t num_finite, std::int64_t num_skipped) {
  num_skipped_ = num_skipped;
  if (!scale_ || !scale) return;
  scale_ = scale;
  num_finite_ = num_finite;
}

void LossScaler::ended_step(const StepResult& result) {
  if (!scale_) return;
  if (result.is_skipped) {
    ++num_skipped_;
    num_finite_ = 0;
    if (*scale_ <= 1)
      throw Failure(
          fmt::format("gradients overflow float16 even at a loss scale of {}: the run diverged; a lower optimizer.lr "
                      "or training.dtype = 'bfloat16' may help",
                      *scale_));
    *scale_ *= config_.backoff_factor;
    return;
  }
  if (++num_finite_ < config_.growth_interval) return;
  num_finite_ = 0;
  const double grown = *scale_ * config_.growth_factor;
  if (grown <= std::numeric_limits<float>::max()) *scale_ = grown;
}

}  // namespace echelon
