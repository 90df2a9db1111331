// What one action computes and sends, written down by the trace backends from the very code that runs it: the cost
// model of an action.
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

/// The traces of the actions of one program of a rank. Microbatches are alike, but for the first one whose weight
/// gradients a stage forms: its products write what those of the others add to (unless gradients of microbatches are
/// kept apart). So a trace is known by its kind, its stage, its unit and whether it is of that one.
class RankTrace {
 public:
  RankTrace(const MeshShape& mesh, int rank, ModelPart& part, const Program& program);

  [[nodiscard]] const CallTrace& of(const Action& action) const { return calls_.at(key_of(action)); }
  /// What forward keeps for one microbatch, all of it and that which backward_input reads alone; and what
  /// backward_input keeps for backward_weight.
  [[nodiscard]] std::int64_t stash_bytes(int stage) const { return stash_bytes_.at(stage); }
  [[nodiscard]] std::int64_t input_stash_bytes(int stage) const { return input_stash_bytes_.at(stage); }
  [[nodiscard]] std::int64_t gradient_stash_bytes(int stage) const { return gradient_stash_bytes_.at(stage); }

 private:
  using Key = std::tuple<ActionKind, int, int, bool>;
  [[nodiscard]] Key key_of(const Action& action) const;

  bool adds_up_microbatches_;         // not where the gradients of each microbatch have a buffer of their own
  std::map<int, int> first_to_form_;  // of each stage: a microbatch
  std::map<Key, CallTrace> calls_;
  std::map<int, std::int64_t> stash_bytes_, input_stash_bytes_, gradient_stash_bytes_;  // by stage
};

}  // namespace echelon
