// Writes the order of one rank in a V, which holds stage `rank` (leg down) and stage 2p - 1 - rank (leg up). Each pass
// takes the next microbatch of its kind.
#pragma once

#include "schedule/schedule.h"

#include <deque>

namespace echelon {

class VRank {
 public:
  VRank(Schedule& schedule, int rank) : schedule_(schedule), stages_{rank, schedule.num_stages - 1 - rank} {}

  enum Leg { down, up };
  void forward(Leg leg) { schedule_.add(ActionKind::forward, stages_[leg], forwards[leg]++); }
  void backward(Leg leg) { schedule_.add(ActionKind::backward, stages_[leg], backwards[leg]++); }
  /// The input gradient alone; the weight gradient is deferred.
  void backward_input(Leg leg) {
    deferred_[leg].push_back(backwards[leg]);
    schedule_.add(ActionKind::backward_input, stages_[leg], backwards[leg]++);
  }
  /// The oldest deferred weight gradient of this leg.
  void backward_weight(Leg leg) {
    schedule_.add(ActionKind::backward_weight, stages_[leg], deferred_[leg].front());
    deferred_[leg].pop_front();
  }
  [[nodiscard]] bool has_weight(Leg leg) const { return !deferred_[leg].empty(); }

  int forwards[2] = {}, backwards[2] = {};  // how many passes of each leg have been run

 private:
  Schedule& schedule_;
  int stages_[2];
  std::deque<int> deferred_[2];
};

}  // namespace echelon
