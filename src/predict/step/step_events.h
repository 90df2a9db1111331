// One step as discrete events: what every simulated rank works on, lane by lane, from the programs' own order and
// edges.
//
// A rank starts its actions in the order of its program, each once all in its `after` have ended, and waits while one
// that is not hidden lasts (compute never is). An action then queues on its lane, first in, first out. What several
// ranks do together starts when the last of them has come to the head of its lane, and lasts as long as the slowest
// needs. A host issues the actions of its rank in the same order and does not wait for them, unless told to: an action
// ends no earlier than its kernels can after the host has issued them.
#pragma once

#include "predict/step/issue_time.h"
#include "schedule/action.h"

#include <cstdint>
#include <vector>

namespace echelon {

inline constexpr int compute_lane = 0, collective_lane = 1, first_wire_lane = 2;
inline constexpr int no_rendezvous = -1;

/// What one action needs.
struct Work {
  double seconds = 0;              // of itself, with all that it needs there
  int lane = compute_lane;         // of its rank; wires to and from each neighbour have lanes of their own
  int rendezvous = no_rendezvous;  // the works of several ranks that are one: a send and its receive, a collective
  bool is_hidden = false;          // the next action may start before this one has ended
  IssueTime issue = {};            // of the host, which issues its rank's actions one after the other
  bool starts_in_step = false;     // the host issues it once all in its `after` have ended, not before
  bool holds_host = false;         // the host waits until it has ended
  bool operator==(const Work&) const = default;
};

/// Of a step that is recorded as a CUDA graph: one launch, before the second action. The first and the last one are
/// outside of it.
void issue_as_graph(double launch_seconds, std::vector<Work>& works);

struct RankWork {
  const Program* program = nullptr;
  std::vector<Work> works = {};  // by action
  int num_lanes = first_wire_lane;
};

struct StepWork {
  std::vector<RankWork> ranks = {};
  std::vector<int> rendezvous_sizes = {};  // of each rendezvous: how many works it has
  // What compute takes longer while something hidden is under way on its rank, as factors.
  double slowdown_by_collectives = 1, slowdown_by_transfers = 1;
};

/// When a rank started an action, and when the action came to the head of its lane, started there and ended. Seconds.
struct ActionTimes {
  double issued = 0, ready = 0, begin = 0, end = 0;
  double host_seconds = 0;  // of what computes: how much earlier it would have ended if its host were free
};

struct StepEvents {
  std::vector<std::vector<ActionTimes>> ranks;  // by rank and action
  double end = 0;
  std::int64_t num_events = 0;  // ends of actions and changes of pace: each costs the logarithm of those pending
};

/// Deterministic. Throws Failure naming a rank and its action if no rank can continue.
[[nodiscard]] StepEvents play(const StepWork& step);

}  // namespace echelon
