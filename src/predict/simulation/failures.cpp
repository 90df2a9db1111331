#include "predict/simulation/failures.h"

#include <cmath>

namespace echelon {

double goodput(const FailureModel& failures, double interval_seconds) {
  const double M = failures.mtbf_seconds;
  if (interval_seconds <= 0) return failures.checkpoint_seconds > 0 ? 0 : std::exp(-failures.restart_seconds / M);
  return interval_seconds / (M * std::exp(failures.restart_seconds / M) *
                             std::expm1((interval_seconds + failures.checkpoint_seconds) / M));
}

double young_interval_seconds(const FailureModel& failures) {
  return std::sqrt(2 * failures.checkpoint_seconds * failures.mtbf_seconds);
}

double daly_interval_seconds(const FailureModel& failures) {
  const double M = failures.mtbf_seconds, delta = failures.checkpoint_seconds, ratio = delta / (2 * M);
  return delta < 2 * M ? young_interval_seconds(failures) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - delta : M;
}

double best_interval_seconds(const FailureModel& failures) {
  const double M = failures.mtbf_seconds;
  double low = 0, high = M;  // the left side falls from e^(delta/M) to 0
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = (low + high) / 2;
    const bool is_below_root = std::exp((middle + failures.checkpoint_seconds) / M) * (1 - middle / M) > 1;
    (is_below_root ? low : high) = middle;
  }
  return high;
}

}  // namespace echelon
