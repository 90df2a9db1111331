// The cost model of an action: what it computes and sends, in order, recorded by the trace backends from the very code
// that runs it.
#pragma once

#include "comm/trace/trace_mesh.h"
#include "ops/trace/trace_ops.h"

#include <cstdint>
#include <variant>
#include <vector>

namespace echelon {

/// The wait for a communication: which of the list's CommRecords it is, counted from 0.
struct CommWait {
  std::size_t start = 0;
  bool operator==(const CommWait&) const = default;
};

/// An operation, the start of a communication, or the wait for one.
using TraceEvent = std::variant<OpRecord, CommRecord, CommWait>;

/// What the action waits for is in the list. Communication that it leaves in progress is waited for by the actions that
/// come after it.
struct CallTrace {
  std::vector<TraceEvent> events = {};
  std::int64_t workspace_bytes = 0;

  /// Adds what is done after it, in the same workspace.
  CallTrace& operator+=(const CallTrace& next);
  [[nodiscard]] std::vector<OpRecord> operations() const;
  /// The records of their starts.
  [[nodiscard]] std::vector<CommRecord> communications() const;
};

}  // namespace echelon
