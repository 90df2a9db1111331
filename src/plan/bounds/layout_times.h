// What the actions of layouts take that have the same shape, data axes and order: each kind of unit, and each action
// without one, is timed once for all their pipelines and recomputations.
#pragma once

#include "blueprint/unit_trace.h"
#include "plan/bounds/unit_costs.h"
#include "predict/step/context_rank.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace echelon {

/// What an action, or a part of it, takes of the device and of its host.
struct LaneTime {
  double seconds = 0;
  IssueTime issue = {};

  void then(const LaneTime& next, std::int64_t count = 1) {
    if (count == 0) return;
    const double all = static_cast<double>(count) * next.seconds;
    issue.then(next.issue.repeated(count, next.seconds), all);
    seconds += all;
  }
};

/// It refers to the machine and the timer.
class LayoutTimes {
 public:
  LayoutTimes(const RunConfig& config, const MachineSpec& machine, CostTimer& timer);

  using PassTimes = std::array<LaneTime, num_pass_kinds>;
  /// Of the microbatch whose weight gradients are computed first, or of the others.
  [[nodiscard]] const PassTimes& passes(int rank, const UnitCost& unit, bool is_first);
  [[nodiscard]] const LaneTime& state(int rank, const UnitState& unit, ActionKind kind);
  /// Of what does not depend on units; `part` is that of the rank in `config`. `peer`: of transfers.
  [[nodiscard]] const LaneTime& once(const Action& action, int peer, const RunConfig& config, ModelPart& part);
  /// Whether replicas of a rank take the same time.
  [[nodiscard]] bool is_regular() const { return devices_.is_regular(); }
  [[nodiscard]] bool has_several_kinds() const { return devices_.has_several_kinds(); }

 private:
  struct Communication {
    CommRecord record;
    double seconds = 0;
  };
  struct Rank {
    int mesh_rank = 0;
    std::map<std::pair<const UnitCost*, bool>, PassTimes> passes = {};
    std::map<std::pair<const UnitState*, ActionKind>, LaneTime> states = {};
    std::map<std::pair<ActionKind, int>, LaneTime> once = {};  // by peer
    std::vector<Communication> communications = {};            // a few: the hops of a ring are the same
  };
  /// Where all ranks take the same time, the first one's of units.
  [[nodiscard]] Rank& of_units(int rank) { return of(ranks_differ_ ? rank : 0); }
  [[nodiscard]] Rank& of(int rank);
  [[nodiscard]] LaneTime time_of(const ActionCost& cost, Rank& rank) const;

  DeviceMap devices_;
  const DeviceSpec& device_;
  CostTimer& timer_;
  ContextRanks context_ranks_;
  bool is_host_free_, ranks_differ_;
  std::deque<Rank> ranks_;  // of the pipeline
};

}  // namespace echelon
