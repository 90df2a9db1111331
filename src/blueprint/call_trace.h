// What one action computes and sends, in order, recorded by the trace backends from the very code that runs it: the
// cost model of an action.
#pragma once

#include "comm/trace/trace_mesh.h"
#include "executor/model_part.h"
#include "ops/trace/trace_ops.h"
#include "schedule/action.h"

#include <map>
#include <tuple>
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

  [[nodiscard]] std::vector<OpRecord> operations() const;
  /// The records of their starts.
  [[nodiscard]] std::vector<CommRecord> communications() const;
};

/// The traces of the actions of one program of a rank. Microbatches are identical, except for the first one whose
/// weight gradients a stage computes: its matmuls write what those of the others add to (unless each microbatch has
/// gradients of its own). So a trace is known by its kind, its stage, its unit and whether it is of that one.
class RankTrace {
 public:
  RankTrace(const RunConfig& config, int rank, ModelPart& part, const Program& program);

  [[nodiscard]] const CallTrace& of(const Action& action) const { return calls_.at(key_of(action)); }
  /// What forward saves for one microbatch, all of it and the part that backward_input alone reads; and what
  /// backward_input saves for backward_weight.
  [[nodiscard]] std::int64_t stash_bytes(int stage) const { return stash_bytes_.at(stage); }
  [[nodiscard]] std::int64_t input_stash_bytes(int stage) const { return input_stash_bytes_.at(stage); }
  [[nodiscard]] std::int64_t gradient_stash_bytes(int stage) const { return gradient_stash_bytes_.at(stage); }

 private:
  using Key = std::tuple<ActionKind, int, int, bool>;
  [[nodiscard]] Key key_of(const Action& action) const;

  bool adds_up_microbatches_;            // not where the gradients of each microbatch have a buffer of their own
  std::map<int, int> first_microbatch_;  // of each stage: the first one whose weight gradients are computed
  std::map<Key, CallTrace> calls_;
  std::map<int, std::int64_t> stash_bytes_, input_stash_bytes_, gradient_stash_bytes_;  // by stage
};

}  // namespace echelon
