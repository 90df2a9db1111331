// When the programs of a layout end, for whatever their actions take. All lanes are first in, first out, and ranks
// start their actions in the order of programs, so what an action waits for does not depend on seconds. It is found
// once; then a step is one pass over the actions, with the same seconds as predict/step/step_events.h without
// slowdowns.
#pragma once

#include "predict/step/step_events.h"

#include <cstdint>
#include <vector>

namespace echelon {

class ProgramPlay {
 public:
  ProgramPlay() = default;
  /// Lanes, rendezvous and programs of the step; its seconds may change later. No action holds its host or starts in
  /// the step.
  explicit ProgramPlay(const StepWork& step);

  /// Of the same step with other seconds: the end of its last action.
  [[nodiscard]] double end(const StepWork& step);

 private:
  enum class Turn : std::uint8_t {
    issue,            // the rank starts the action, which queues on its lane
    begin,            // it comes to the head of its lane
    issue_and_begin,  // both, at the same time
    meet,             // it comes to the head, where it waits for the same action of other ranks
    meet_last         // likewise, of the last one
  };
  struct Event {
    Turn turn{};
    bool is_hidden = false;
    std::int32_t rank = 0, action = 0;                             // of the rank
    std::int32_t place = 0, lane = 0, rendezvous = no_rendezvous;  // among all of the step
    std::int32_t num_awaited = 0;  // hidden actions for which the rank waits: the next ones of awaited_
  };
  struct Meeting {
    double begin = 0, seconds = 0, earliest_end = 0;
  };
  class Order;

  std::vector<Event> events_;
  std::vector<std::int32_t> awaited_;         // places
  std::vector<std::vector<Event>> meetings_;  // by rendezvous: those that take part
  std::size_t num_ranks_ = 0, num_lanes_ = 0, num_actions_ = 0;
  // While a step is simulated: of ranks, lanes and actions.
  struct Rank {
    double free = 0, host = 0;
  };
  std::vector<Rank> ranks_;
  std::vector<double> lanes_, issued_, earliest_ends_, ends_;
  std::vector<Meeting> met_;
};

}  // namespace echelon
