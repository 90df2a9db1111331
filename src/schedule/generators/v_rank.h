// The hand of one rank in a V: a stage on the way down (stage `rank`) and one on the way up (stage 2p - 1 - rank), each
// pass with the next microbatch of its kind.
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
  /// The input's part alone; that of the weights is put off.
  void backward_input(Leg leg) {
    put_off_[leg].push_back(backwards[leg]);
    schedule_.add(ActionKind::backward_input, stages_[leg], backwards[leg]++);
  }
  /// The oldest that was put off on this leg.
  void backward_weight(Leg leg) {
    schedule_.add(ActionKind::backward_weight, stages_[leg], put_off_[leg].front());
    put_off_[leg].pop_front();
  }
  [[nodiscard]] bool has_weight(Leg leg) const { return !put_off_[leg].empty(); }

  int forwards[2] = {}, backwards[2] = {};  // how many passes of each leg have been run

 private:
  Schedule& schedule_;
  int stages_[2];
  std::deque<int> put_off_[2];
};

}  // namespace echelon
