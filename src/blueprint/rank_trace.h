// What the actions of one program of a rank compute and send, folded from the units of its stages.
#pragma once

#include "blueprint/unit_trace.h"

#include <map>
#include <tuple>

namespace echelon {

/// The traces of the actions of one program of a rank. Microbatches are identical, except for the first one whose
/// weight gradients a stage computes: its matmuls write what those of the others add to (unless each microbatch has
/// gradients of its own). So a trace is known by its kind, its stage, its unit and whether it is of that one.
class RankTrace {
 public:
  RankTrace(const RunConfig& config, int rank, const ModelPart& part, const Program& program, UnitTraces& units);

  [[nodiscard]] const CallTrace& of(const Action& action) const { return calls_.at(key_of(action)); }
  /// What forward saves for one microbatch, all of it and the part that backward_input alone reads; and what
  /// backward_input saves for backward_weight.
  [[nodiscard]] std::int64_t stash_bytes(int stage) const { return saved_.at(stage).stash_bytes; }
  [[nodiscard]] std::int64_t input_stash_bytes(int stage) const { return saved_.at(stage).input_stash_bytes; }
  [[nodiscard]] std::int64_t gradient_stash_bytes(int stage) const { return saved_.at(stage).gradient_stash_bytes; }

 private:
  class Fold;
  struct Saved {
    std::int64_t stash_bytes = 0, input_stash_bytes = 0, gradient_stash_bytes = 0;
  };
  using Key = std::tuple<ActionKind, int, int, bool>;
  [[nodiscard]] Key key_of(const Action& action) const;

  bool adds_up_microbatches_;            // not where the gradients of each microbatch have a buffer of their own
  std::map<int, int> first_microbatch_;  // of each stage: the first one whose weight gradients are computed
  std::map<Key, CallTrace> calls_;
  std::map<int, Saved> saved_;  // by stage
};

}  // namespace echelon
