#include "schedule/simulation/rates.h"

#include <algorithm>

namespace echelon {

double longest_rank(const Timeline& timeline, int num_ranks) {
  std::vector<double> first(num_ranks, no_time), last(num_ranks, -no_time);
  for (const Event& event : timeline.events) {
    first[event.rank] = std::min(first[event.rank], event.start);
    last[event.rank] = std::max(last[event.rank], event.end);
  }
  double longest = 0;
  for (int rank = 0; rank < num_ranks; ++rank) longest = std::max(longest, last[rank] - first[rank]);
  return longest;
}

double bubble_rate(double cost, int num_microbatches, const PassTimes& times) {
  const double work = num_microbatches * (times.forward + times.backward_input + times.backward_weight);
  return cost > 0 ? (cost - work) / cost : 0;
}

std::vector<double> peak_memory(const Schedule& schedule, double weight_memory) {
  const double stages_per_rank = static_cast<double>(schedule.num_stages) / static_cast<double>(schedule.ranks.size());
  std::vector<double> peaks;
  for (const ComputeOrder& order : schedule.ranks) {
    int num_forwards = 0, num_inputs = 0, num_weights = 0;  // counted apart, so that whole numbers stay whole
    double peak = 0;
    for (const Action& action : order) {
      num_forwards += action.kind == ActionKind::forward;
      num_inputs += action.kind == ActionKind::backward || action.kind == ActionKind::backward_input;
      num_weights += action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
      peak = std::max(peak, (num_forwards - num_inputs) + (num_inputs - num_weights) * weight_memory);
    }
    peaks.push_back(peak / stages_per_rank);
  }
  return peaks;
}

}  // namespace echelon
