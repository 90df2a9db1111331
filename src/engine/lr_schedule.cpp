#include "engine/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace echelon {
namespace {

/// 1 at the start of the decay, 0 at its end.
double remaining(const LrSchedulerConfig& schedule, double progress) {
  switch (schedule.decay) {
    case LrDecay::none: return 1.0;
    case LrDecay::cosine: return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case LrDecay::linear: return 1.0 - progress;
    case LrDecay::wsd: return std::min(1.0, (1.0 - progress) / schedule.decay_ratio);
  }
  return 1.0;
}

}  // namespace

double learning_rate(const RunConfig& config, std::int64_t step, std::int64_t first_step) {
  const LrSchedulerConfig& schedule = config.lr_scheduler;
  const auto warmup = static_cast<double>(schedule.warmup_steps), now = static_cast<double>(step - first_step);
  if (now <= warmup) return config.optimizer.lr * now / warmup;
  const double decay_steps = std::max(1.0, static_cast<double>(config.training.steps - first_step) - warmup);
  const double share = remaining(schedule, std::clamp((now - 1 - warmup) / decay_steps, 0.0, 1.0));
  return config.optimizer.lr * (schedule.min_lr_factor + (1.0 - schedule.min_lr_factor) * share);
}

}  // namespace echelon
