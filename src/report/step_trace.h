// A measured step of one rank: the times of its program's actions, of every operation and of every call into the
// transport.
#pragma once

#include "schedule/timeline.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class SpanKind : std::uint8_t {
  action,         // an action of the program; for an asynchronous one, its start
  wait,           // for an earlier asynchronous action
  operation,      // of Ops
  communication,  // a call of Comm or Mesh
};

/// A time span of a rank's thread. Spans nest: operations and communication are inside actions and waits, except for
/// polls.
struct Span {
  SpanKind kind = SpanKind::action;
  // "matmul", "all_reduce wait"; of actions and waits: the kind of the action. It must outlive the span.
  std::string_view name;
  int action_id = -1;         // the action that it belongs to or waits for; -1: between two actions
  double start = 0, end = 0;  // seconds of the host's monotonic clock
  std::string_view dtype;     // of an operation
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t flops = 0;
  std::int64_t bytes = 0;  // touched by an operation; of communication: of the full buffer
  std::string group;       // of communication
  // Of the wait for rows of experts: "dispatch" or "combine", and when they left.
  std::string_view exchange = {};
  double under_way_since = 0;

  [[nodiscard]] double seconds() const { return end - start; }
};

struct StepTrace {
  std::int64_t step = 0;
  int rank = 0;
  double start = 0, end = 0;
  double attention_share = 1;  // of the flops of attention, what documents leave
  std::vector<Span> spans;     // ordered by end
};

/// When each action started and ended, including its asynchronous part, for comparison with the simulated timeline.
[[nodiscard]] Timeline timeline_of(const StepTrace& trace, const Program& program);

}  // namespace echelon
