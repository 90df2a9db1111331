#include "plan/bounds/layout_times.h"

#include "predict/machine/least_communication.h"
#include "predict/step/host_lane.h"

#include <algorithm>

namespace echelon {

LayoutTimes::LayoutTimes(const RunConfig& config, const MachineSpec& machine, CostTimer& timer)
    : devices_(config.mesh_shape(), machine),
      device_(machine.nodes.front().device),
      timer_(timer),
      context_ranks_(config),
      is_host_free_(HostCosts{device_.launch_seconds, device_.collective_launch_seconds}.is_free()),
      // A group's nodes may be connected to one switch or to several.
      ranks_differ_(machine.network.nodes_per_leaf > 0) {}

LayoutTimes::Rank& LayoutTimes::of(int rank) {
  while (static_cast<int>(ranks_.size()) <= rank) {
    Coordinates coordinates{};
    coordinates[static_cast<std::size_t>(Axis::pp)] = static_cast<int>(ranks_.size());
    ranks_.push_back({.mesh_rank = context_ranks_.busiest_like(devices_.mesh().rank_of(coordinates), devices_.mesh())});
  }
  return ranks_[static_cast<std::size_t>(rank)];
}

LaneTime LayoutTimes::time_of(const ActionCost& cost, Rank& rank) const {
  const auto seconds_of = [&](const CommRecord& record) {
    const auto same = std::ranges::find(rank.communications, record, &Communication::record);
    if (same != rank.communications.end()) return same->seconds;
    rank.communications.push_back({record, least_communication_seconds(record, rank.mesh_rank, devices_)});
    return rank.communications.back().seconds;
  };
  LaneTime time = {.seconds = cost.events.seconds(seconds_of)};
  if (!is_host_free_) time.issue = cost.events.issue_time(device_.collective_launch_seconds, seconds_of);
  return time;
}

const LayoutTimes::PassTimes& LayoutTimes::passes(int rank, const UnitCost& unit, bool is_first) {
  Rank& own = of_units(rank);
  const auto [known, is_new] = own.passes.try_emplace({&unit, is_first});
  for (std::size_t pass = 0; is_new && pass < num_pass_kinds; ++pass)
    known->second[pass] = time_of(unit.costs->of(pass, is_first), own);
  return known->second;
}

const LaneTime& LayoutTimes::state(int rank, const UnitState& unit, ActionKind kind) {
  Rank& own = of_units(rank);
  const auto [known, is_new] = own.states.try_emplace({&unit, kind});
  if (!is_new) return known->second;
  const auto found = unit.costs.find(kind);
  if (found != unit.costs.end()) known->second = time_of(found->second, own);
  return known->second;
}

const LaneTime& LayoutTimes::once(const Action& action, int peer, const RunConfig& config, ModelPart& part) {
  Rank& own = of(part.pipeline_rank);
  const auto [known, is_new] = own.once.try_emplace({action.kind, peer});
  if (is_new)
    known->second = time_of(timer_.cost_of(trace_without_units(config, own.mesh_rank, part, action, true)), own);
  return known->second;
}

}  // namespace echelon
