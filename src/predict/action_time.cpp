#include "predict/action_time.h"

#include "predict/device_time.h"
#include "predict/network_time.h"
#include "spec/groups.h"

#include <algorithm>
#include <set>

namespace echelon {

double ActionTime::total_seconds() const {
  double sum = compute_seconds;
  for (const auto& [group, seconds] : communication_seconds) sum += seconds;
  return sum;
}

ActionTimer::ActionTimer(const RunConfig& config, const SoftwareProfile& profile, const DeviceMap& devices,
                         const std::map<int, double>& slow_ranks, int rank)
    : config_(config), profile_(profile), devices_(devices), rank_(rank) {
  std::set<Member> members;
  for (const int each : devices.mesh().ranks_of(tp_group, rank)) {
    const auto slow = slow_ranks.find(each);
    members.insert({&devices.kind_of(each), slow == slow_ranks.end() ? 1 : slow->second});
  }
  members_.assign(members.begin(), members.end());
}

const ActionTime& ActionTimer::time_of(const Action& action, const CallTrace& trace) {
  const auto known = times_.find(&trace);
  if (known != times_.end()) return known->second;
  return times_.emplace(&trace, timed(rewritten(profile_, config_, action, trace))).first->second;
}

ActionTime ActionTimer::timed(const CallTrace& does) const {
  ActionTime time;
  for (const Member& member : members_) {
    double seconds = 0;
    for (const OpRecord& operation : does.ops) seconds += operation_seconds(operation, member.kind->device);
    time.compute_seconds = std::max(time.compute_seconds, seconds * member.factor);
  }
  for (const OpRecord& operation : does.ops) time.flops += static_cast<double>(operation.flops);
  for (const CommRecord& record : does.comms) {
    if (record.group_size < 2) continue;
    time.communication_seconds[record.group] += communication_seconds(record, rank_, devices_);
    time.sent_bytes[name_of(record.group)] += record.sent_bytes;
  }
  return time;
}

}  // namespace echelon
