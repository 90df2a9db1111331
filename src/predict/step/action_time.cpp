#include "predict/step/action_time.h"

#include "predict/machine/device_time.h"
#include "predict/machine/network_time.h"
#include "predict/step/action_cost.h"

#include <algorithm>
#include <set>

namespace echelon {

double ActionTime::communicated_seconds() const {
  double sum = 0;
  for (const auto& [group, of_group] : communication_seconds) sum += of_group;
  return sum;
}

ActionTimer::ActionTimer(const RunConfig& config, const SoftwareProfile& profile, const DeviceMap& devices,
                         const std::map<int, double>& slow_ranks, int rank)
    : config_(config), profile_(profile), devices_(devices), rank_(rank), context_ranks_(config, profile.pairs_share) {
  const Group of_stage = {AxisSet{Axis::cp, Axis::tp}, Group::Part::all, 0};
  std::set<Member> members;
  for (const int each : devices.mesh().ranks_of(of_stage, rank)) {
    const auto slow = slow_ranks.find(each);
    members.insert({&devices.kind_of(each), slow == slow_ranks.end() ? 1 : slow->second});
  }
  members_.assign(members.begin(), members.end());
}

const ActionTime& ActionTimer::time_of(const Action& action, const CallTrace& trace) {
  const auto known = times_.find(&trace);
  if (known != times_.end()) return known->second;
  return times_.emplace(&trace, timed(action, rewritten(profile_, config_, action, trace))).first->second;
}

/// By the slowest host.
IssueTime ActionTimer::issued(const Action& action, const CallTrace& trace) const {
  IssueTime slowest;
  for (const Member& member : members_) {
    const DeviceSpec& device = member.kind->device;
    const HostCosts costs = {device.launch_seconds, device.collective_launch_seconds, profile_.host,
                             profile_.host.updates_all_at_once && !is_compute(action.kind), profile_.is_echelon};
    const IssueTime time = issue_time(
        trace, costs, [&](const OpRecord& operation) { return member.factor * operation_seconds(operation, device); },
        [&](const CommRecord& record) { return communication_seconds(record, rank_, devices_); });
    slowest.issue_seconds = std::max(slowest.issue_seconds, time.issue_seconds);
    slowest.after_host_seconds = std::max(slowest.after_host_seconds, time.after_host_seconds);
  }
  return slowest;
}

double ActionTimer::launch_seconds() const {
  double slowest = 0;
  for (const Member& member : members_) slowest = std::max(slowest, member.kind->device.launch_seconds);
  return slowest;
}

ActionTime ActionTimer::timed(const Action& action, const CallTrace& trace) const {
  ActionTime time;
  CostEvents events;
  for (const Member& member : members_) {
    ActionCost cost = {.events = cost_events(trace, [&](const OpRecord& operation) {
                         return member.factor * operation_seconds(operation, member.kind->device);
                       })};
    if (const double seconds = cost.compute_seconds(); seconds >= time.compute_seconds) {
      time.compute_seconds = seconds;
      events = std::move(cost.events);
    }
  }
  const auto seconds_of = [&](const CommRecord& record) {
    const double seconds = communication_seconds(record, rank_, devices_);
    time.communication_seconds[record.group] += seconds;
    time.sent_bytes[name_of(record.group)] += record.sent_bytes;
    return seconds;
  };
  time.seconds = events.seconds(seconds_of, [&](const CommRecord& record, double start, double end) {
    time.messages.push_back({record.kind, record.group, record.purpose, start, end});
  });
  time.issue = issued(action, trace);
  const int coordinate = devices_.mesh().coordinate(rank_, Axis::cp);
  for (const OpRecord& operation : trace.operations()) time.flops += context_ranks_.mean_flops(operation, coordinate);
  return time;
}

}  // namespace echelon
