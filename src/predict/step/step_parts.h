// Where the time of a step goes on one rank: every moment belongs to one part, so they add up to the step.
//
//   Compute, optimizer, other   while the rank computes; what is sent inside its layers counts under its group.
//   Host                        of this, how much longer it takes because kernels are issued too late.
//   Exposed communication       while it does not compute, and something that it sends or receives is under way.
//   Waiting                     while it does not compute, and its next collective waits for other replicas, while
//                               all of its own have come.
//   Bubble                      all else: it waits for other stages.
#pragma once

#include "predict/step/action_time.h"
#include "predict/step/step_events.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

struct StepParts {
  double compute_seconds = 0;                                        // forward and backward
  std::map<std::string, double> exposed_communication_seconds = {};  // by the name of the group: what nothing hides
  double bubble_seconds = 0;                                         // waiting for other stages
  // For slower replicas, in collectives of the data axes.
  double waiting_seconds = 0;
  double optimizer_seconds = 0;  // clipping and the update
  double other_seconds = 0;      // gradients cleared, stored and converted
  double host_seconds = 0;       // the device waits for its host

  [[nodiscard]] double total_seconds() const;
  /// Not only for the step's first kernels.
  [[nodiscard]] bool waits_for_host() const { return host_seconds >= 5e-4 * total_seconds(); }
  StepParts& operator+=(const StepParts& other);
  StepParts& operator*=(double factor);
};

/// What one rank's works are made of. `times[i]` is that of its i-th action.
struct RankTimes {
  const RankWork* work = nullptr;
  std::vector<const ActionTime*> times = {};
};

/// By rank and action: since when it has been waiting for other replicas alone, as the last of its own has come to what
/// they do together; no_time where it meets none. Rank r is of replica r / num_stages.
[[nodiscard]] std::vector<std::vector<double>> waits_for_replicas_since(const StepWork& step, const StepEvents& events,
                                                                        int num_stages);

/// `waits_since`: that of the rank, by action.
[[nodiscard]] StepParts parts_of(const RankTimes& rank, const std::vector<ActionTimes>& events,
                                 const std::vector<double>& waits_since, double step_seconds);

}  // namespace echelon
