// A measured step of one rank: what ran when, from the actions of its program down to every operation and every call
// into the transport.
#pragma once

#include "schedule/timeline.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class SpanKind : std::uint8_t {
  action,         // an action of the program; of one that is left under way, its start
  wait,           // for what an earlier action left under way
  operation,      // of Ops
  communication,  // a call of Comm or Mesh
};

/// Something that a rank's thread did from start to end. Spans nest: operations and communication lie inside actions
/// and waits, but for polls.
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

  [[nodiscard]] double seconds() const { return end - start; }
};

struct StepTrace {
  std::int64_t step = 0;
  int rank = 0;
  double start = 0, end = 0;
  std::vector<Span> spans;  // in the order of their ends
};

/// When each action began and when it was over, with what it had left under way: to be laid over what `play` predicts.
[[nodiscard]] Timeline timeline_of(const StepTrace& trace, const Program& program);

}  // namespace echelon
