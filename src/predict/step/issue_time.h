// What an action takes of the host that issues it: max-plus algebra on two values (predict/step/host_lane.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace echelon {

/// What an action takes of its host; 0 where the host is free.
struct IssueTime {
  double issue_seconds = 0;       // until the host has issued all of it
  double after_host_seconds = 0;  // from when the host starts until the action ends on a device that was idle
  bool operator==(const IssueTime&) const = default;

  /// Adds what comes next, which takes `seconds` of a device whose host is ahead.
  void then(const IssueTime& next, double seconds) {
    after_host_seconds = std::max(after_host_seconds + seconds, issue_seconds + next.after_host_seconds);
    issue_seconds += next.issue_seconds;
  }
  /// So many times, at least once, each of which takes `seconds` of such a device.
  [[nodiscard]] IssueTime repeated(std::int64_t count, double seconds) const {
    return {static_cast<double>(count) * issue_seconds,
            after_host_seconds + static_cast<double>(count - 1) * std::max(issue_seconds, seconds)};
  }
};

/// Of `num_kernels`, which take `seconds` together.
[[nodiscard]] inline IssueTime issue_of_kernels(std::int64_t num_kernels, double launch_seconds, double seconds) {
  const double issue = static_cast<double>(num_kernels) * launch_seconds;
  return {issue, issue + seconds};
}

}  // namespace echelon
