#include "plan/bounds/compact_schedule.h"

#include <algorithm>

namespace echelon {
namespace {

class Clock {
 public:
  Clock(const CompactSchedule& schedule, const StageSeconds& seconds, double transfer_seconds)
      : schedule_(schedule),
        seconds_(seconds),
        transfer_seconds_(transfer_seconds),
        num_microbatches_(static_cast<std::size_t>(schedule.num_microbatches)),
        forward_end_(seconds.size() * num_microbatches_, no_time),
        backward_end_(forward_end_),
        next_(schedule.ranks.size(), 0),
        free_(schedule.ranks.size(), 0) {}

  std::vector<double> run() {
    for (int rank = static_cast<int>(next_.size()) - 1; rank >= 0; --rank) awake_.push_back(rank);
    while (!awake_.empty()) {
      const int rank = awake_.back();
      awake_.pop_back();
      advance(static_cast<std::size_t>(rank));
    }
    return free_;
  }

 private:
  [[nodiscard]] std::size_t slot(std::size_t stage, std::size_t microbatch) const {
    return stage * num_microbatches_ + microbatch;
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    return schedule_.rank_of_stage[from] == schedule_.rank_of_stage[to] ? 0 : transfer_seconds_;
  }

  [[nodiscard]] double ready(const CompactPass& pass) const {
    const std::size_t stage = pass.stage;
    switch (pass.kind) {
      case PassKind::forward:
        return stage == 0 ? 0 : forward_end_[slot(stage - 1, pass.microbatch)] + message(stage - 1, stage);
      case PassKind::backward:
      case PassKind::backward_input:
        if (stage + 1 == seconds_.size()) return forward_end_[slot(stage, pass.microbatch)];
        return backward_end_[slot(stage + 1, pass.microbatch)] + message(stage + 1, stage);
      case PassKind::backward_weight: return 0;
    }
    return 0;
  }

  void advance(std::size_t rank) {
    const std::vector<CompactPass>& order = schedule_.ranks[rank];
    for (; next_[rank] < order.size(); ++next_[rank]) {
      const CompactPass& pass = order[next_[rank]];
      const double start = ready(pass);
      if (start == no_time) return;
      const double end = std::max(free_[rank], start) + seconds_[pass.stage][static_cast<std::size_t>(pass.kind)];
      free_[rank] = end;
      if (pass.kind == PassKind::forward) {
        forward_end_[slot(pass.stage, pass.microbatch)] = end;
        if (pass.stage + 1U < seconds_.size()) wake(pass.stage + 1U, rank);
      } else if (pass.kind != PassKind::backward_weight) {
        backward_end_[slot(pass.stage, pass.microbatch)] = end;
        if (pass.stage > 0) wake(pass.stage - 1U, rank);
      }
    }
  }

  void wake(std::size_t stage, std::size_t rank) {
    const int other = schedule_.rank_of_stage[stage];
    if (static_cast<std::size_t>(other) != rank) awake_.push_back(other);
  }

  const CompactSchedule& schedule_;
  const StageSeconds& seconds_;
  double transfer_seconds_;
  std::size_t num_microbatches_;
  std::vector<double> forward_end_, backward_end_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::vector<int> awake_;
};

}  // namespace

CompactSchedule compact(const Schedule& schedule, BackwardKinds backward) {
  CompactSchedule result{.ranks = {},
                         .rank_of_stage = schedule.rank_of_stage,
                         .num_microbatches = schedule.num_microbatches,
                         .backward = backward};
  for (const ComputeOrder& order : schedule.ranks) {
    std::vector<CompactPass>& passes = result.ranks.emplace_back();
    passes.reserve(order.size());
    for (const Action& action : order)
      passes.push_back({pass_of(action.kind).value(), static_cast<std::uint16_t>(action.stage),
                        static_cast<std::uint32_t>(action.microbatch)});
  }
  return result;
}

std::vector<double> last_pass_ends(const CompactSchedule& schedule, const StageSeconds& seconds,
                                   double transfer_seconds) {
  return Clock(schedule, seconds, transfer_seconds).run();
}

}  // namespace echelon
