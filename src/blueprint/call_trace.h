// What one action computes and sends, written down by the trace backends from the very code that runs it: the cost model of an action.
#pragma once

#include "blueprint/model_part.h"
#include "comm/trace/trace_mesh.h"
#include "ops/trace/trace_ops.h"
#include "schedule/action.h"

#include <map>
#include <tuple>
#include <vector>

namespace echelon {

struct CallTrace {
  std::vector<OpRecord> ops;
  std::vector<CommRecord> comms;
  std::int64_t workspace_bytes = 0;
};

/// The traces of the actions of one program of a rank. Microbatches are alike, but for the first one that goes back, whose products write gradients to which
/// those of the others add; so a trace is known by its kind, its unit and whether it is of that one.
class RankTrace {
 public:
  RankTrace(const MeshShape& mesh, int rank, ModelPart& part, const Program& program);

  [[nodiscard]] const CallTrace& of(const Action& action) const { return calls_.at(key_of(action)); }
  /// What forward keeps for one microbatch, and what backward_input keeps for backward_weight.
  [[nodiscard]] std::int64_t stash_bytes() const { return stash_bytes_; }
  [[nodiscard]] std::int64_t gradient_stash_bytes() const { return gradient_stash_bytes_; }

 private:
  using Key = std::tuple<ActionKind, int, bool>;
  [[nodiscard]] Key key_of(const Action& action) const;

  int first_to_go_back_ = -1;  // a microbatch
  std::map<Key, CallTrace> calls_;
  std::int64_t stash_bytes_ = 0;
  std::int64_t gradient_stash_bytes_ = 0;
};

}  // namespace echelon
