// On which lane of its rank an action runs, and with which actions of other ranks: one rule for a simulated step and
// for the programs that a search simulates.
#pragma once

#include "predict/software/overlap.h"
#include "predict/step/step_events.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace echelon {

/// Whether the next action may start before one of this kind has ended.
[[nodiscard]] bool is_hidden(ActionKind kind, const OverlapRules& overlap);

/// The stage at the other end.
[[nodiscard]] int other_stage(const Action& transfer);

/// Gives the rendezvous of a step and the lanes of one rank after the other their indices. A message has one index per
/// receive, a collective one per participants, kind and repetition.
class StepLanes {
 public:
  /// Appends the sizes of rendezvous to `work`, which it refers to.
  StepLanes(StepWork& work, OverlapRules overlap) : work_(work), overlap_(overlap) {}

  /// What comes now is of this rank, which is one of a replica.
  void start(int rank, int replica);
  [[nodiscard]] Work of(const Action& action) const { return {.is_hidden = is_hidden(action.kind, overlap_)}; }
  /// A send or receive; `peer`: the pipeline rank at the other end.
  [[nodiscard]] Work transfer(const Action& action, int peer);
  /// `participants`: the simulated ranks that take part, ascending; a rank alone needs no rendezvous.
  [[nodiscard]] Work collective(const Action& action, const std::vector<int>& participants);
  /// Of the rank.
  [[nodiscard]] int num_lanes() const { return first_wire_lane + static_cast<int>(wires_.size()); }
  [[nodiscard]] std::vector<std::string> lane_names() const;

 private:
  using Message = std::tuple<int, bool, int, int>;                // replica, whether forward, stage, microbatch
  using Meeting = std::tuple<std::vector<int>, ActionKind, int>;  // participants, and which of its kind
  template <class Key>
  [[nodiscard]] int number(std::map<Key, int>& numbers, Key key, int size);

  StepWork& work_;
  OverlapRules overlap_;
  int rank_ = 0, replica_ = 0;
  std::map<std::pair<int, bool>, int> wires_;  // by peer, and whether they send
  std::map<std::tuple<int, ActionKind, std::vector<int>>, int> counts_;
  std::map<Message, int> messages_;
  std::map<Meeting, int> meetings_;
};

}  // namespace echelon
