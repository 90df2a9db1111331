// Seconds of one action on a rank, by what it computes and what it sends.
#pragma once

#include "predict/machine/device_map.h"
#include "predict/software/software_profile.h"
#include "predict/step/context_rank.h"
#include "predict/step/host_lane.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

/// A communication that an action starts, in seconds since its own start.
struct MessageTime {
  CommKind kind = CommKind::barrier;
  Group group = {};
  RowPurpose purpose = RowPurpose::other;
  double start = 0, end = 0;
};

struct ActionTime {
  double seconds = 0;  // from its start until it has computed and communicated all
  double compute_seconds = 0;
  std::map<Group, double> communication_seconds = {};  // of groups of more than one rank
  double flops = 0;                                    // of one rank, on average over context-parallel ones
  IssueTime issue = {};
  std::map<std::string, std::int64_t> sent_bytes = {};
  std::vector<MessageTime> messages = {};  // in groups of more than one rank, as it would be alone

  /// That nothing hides: while it does not compute.
  [[nodiscard]] double exposed_seconds() const { return seconds - compute_seconds; }
  [[nodiscard]] double communicated_seconds() const;
};

/// Knows what the actions of one pipeline rank of a replica take. The tensor- and context-parallel ranks of a stage go
/// at the pace of the slowest of them.
class ActionTimer {
 public:
  /// `rank`: that of the stage which represents it (Replicas); `slow_ranks`: factors of the time of what they compute.
  /// It refers to all but `rank`.
  ActionTimer(const RunConfig& config, const SoftwareProfile& profile, const DeviceMap& devices,
              const std::map<int, double>& slow_ranks, int rank);

  [[nodiscard]] const ActionTime& time_of(const Action& action, const CallTrace& trace);
  /// Of one launch, by the slowest host.
  [[nodiscard]] double launch_seconds() const;

 private:
  struct Member {
    const NodeSpec* kind = nullptr;
    double factor = 1;
    auto operator<=>(const Member&) const = default;
  };
  [[nodiscard]] ActionTime timed(const Action& action, const CallTrace& trace) const;
  [[nodiscard]] IssueTime issued(const Action& action, const CallTrace& trace) const;

  const RunConfig& config_;
  const SoftwareProfile& profile_;
  const DeviceMap& devices_;
  int rank_;
  std::vector<Member> members_;  // of its tensor- and context-parallel ranks, those that differ
  ContextRanks context_ranks_;
  std::map<const CallTrace*, ActionTime> times_;
};

}  // namespace echelon
