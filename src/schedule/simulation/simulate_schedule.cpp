#include "schedule/simulation/simulate_schedule.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

class ScheduleSimulation {
 public:
  ScheduleSimulation(const Schedule& schedule, const PassTimes& times);
  Timeline run();

 private:
  void advance(int rank);
  [[nodiscard]] double input_ready(const Action& action) const;
  [[nodiscard]] double duration(const Action& action) const;
  [[nodiscard]] std::size_t slot(int stage, int microbatch) const {
    return std::size_t(stage) * schedule_.num_microbatches + microbatch;
  }
  [[nodiscard]] double message(int from, int to) const {
    return schedule_.rank_of_stage[from] == schedule_.rank_of_stage[to] ? 0 : times_.p2p;
  }
  void finish(const Action& action, double end);

  const Schedule& schedule_;
  const PassTimes& times_;
  double share_;  // of a rank's work in one of its stages
  std::vector<double> forward_end_, backward_end_;
  std::vector<std::size_t> next_;  // [rank]
  std::vector<double> free_;       // [rank] since when
  std::vector<std::vector<Event>> events_;
  std::vector<int> awake_;  // ranks that may be able to continue
};

ScheduleSimulation::ScheduleSimulation(const Schedule& schedule, const PassTimes& times)
    : schedule_(schedule),
      times_(times),
      share_(static_cast<double>(schedule.ranks.size()) / schedule.num_stages),
      forward_end_(slot(schedule.num_stages, 0), no_time),
      backward_end_(slot(schedule.num_stages, 0), no_time),
      next_(schedule.ranks.size(), 0),
      free_(schedule.ranks.size(), 0),
      events_(schedule.ranks.size()) {}

Timeline ScheduleSimulation::run() {
  for (int rank = static_cast<int>(next_.size()) - 1; rank >= 0; --rank) awake_.push_back(rank);
  while (!awake_.empty()) {
    const int rank = awake_.back();
    awake_.pop_back();
    advance(rank);
  }
  Timeline timeline;
  for (std::size_t rank = 0; rank < next_.size(); ++rank) {
    const ComputeOrder& order = schedule_.ranks[rank];
    if (next_[rank] < order.size())
      throw Failure(fmt::format("rank {} waits forever before {}", rank, to_string(order[next_[rank]])));
    timeline.events.insert(timeline.events.end(), events_[rank].begin(), events_[rank].end());
  }
  return timeline;
}

void ScheduleSimulation::advance(int rank) {
  const ComputeOrder& order = schedule_.ranks[rank];
  for (; next_[rank] < order.size(); ++next_[rank]) {
    const Action& action = order[next_[rank]];
    const double ready = input_ready(action);
    if (ready == no_time) return;
    const double start = std::max(free_[rank], ready), end = start + duration(action);
    events_[rank].push_back({rank, static_cast<int>(next_[rank]), Lane::compute, start, end});
    free_[rank] = end;
    finish(action, end);
  }
}

// A weight gradient needs its own input gradient only, which comes before it on its rank.
double ScheduleSimulation::input_ready(const Action& action) const {
  const int stage = action.stage, microbatch = action.microbatch;
  if (action.kind == ActionKind::forward)
    return stage == 0 ? 0 : forward_end_[slot(stage - 1, microbatch)] + message(stage - 1, stage);
  if (action.kind == ActionKind::backward_weight) return backward_end_[slot(stage, microbatch)];
  const double own = forward_end_[slot(stage, microbatch)];
  if (stage == schedule_.num_stages - 1) return own;
  return std::max(own, backward_end_[slot(stage + 1, microbatch)] + message(stage + 1, stage));
}

double ScheduleSimulation::duration(const Action& action) const {
  switch (action.kind) {
    case ActionKind::forward: return share_ * times_.forward;
    case ActionKind::backward: return share_ * (times_.backward_input + times_.backward_weight);
    case ActionKind::backward_input: return share_ * times_.backward_input;
    case ActionKind::backward_weight: return share_ * times_.backward_weight;
    default: return 0;
  }
}

void ScheduleSimulation::finish(const Action& action, double end) {
  if (action.kind == ActionKind::backward_weight) return;
  const bool is_forward = action.kind == ActionKind::forward;
  (is_forward ? forward_end_ : backward_end_)[slot(action.stage, action.microbatch)] = end;
  const int reader = action.stage + (is_forward ? 1 : -1);
  if (reader >= 0 && reader < schedule_.num_stages) awake_.push_back(schedule_.rank_of_stage[reader]);
}

}  // namespace

Timeline simulate_schedule(const Schedule& schedule, const PassTimes& times) {
  return ScheduleSimulation(schedule, times).run();
}

}  // namespace echelon
