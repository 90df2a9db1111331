// What the actions of one program of a rank compute and send, folded from the units of its stages.
#pragma once

#include "blueprint/unit_trace.h"

#include <map>
#include <tuple>

namespace echelon {

/// One tensor between stages or units.
[[nodiscard]] RegionUse boundary_of(const ModelPart& part);

/// The traces of the actions of one program of a rank. Microbatches are identical, except for the first one whose
/// weight gradients a stage computes: its matmuls write what those of the others add to (unless each microbatch has
/// gradients of its own). So a trace is known by its kind, its stage, its unit and whether it is of that one.
class RankTrace {
 public:
  RankTrace(const RunConfig& config, int rank, const ModelPart& part, const Program& program, UnitTraces& units);

  [[nodiscard]] const CallTrace& of(const Action& action) const { return calls_.at(key_of(action)); }
  /// What forward saves for one microbatch: until the weights' gradients are computed, and what backward_input alone
  /// reads; and what backward_input saves for backward_weight.
  struct Saved {
    RegionUse stash = {}, input_stash = {}, gradient_stash = {};
  };
  [[nodiscard]] const Saved& saved(int stage) const { return saved_.at(stage); }

 private:
  class Fold;
  using Key = std::tuple<ActionKind, int, int, bool>;
  [[nodiscard]] Key key_of(const Action& action) const;

  bool adds_up_microbatches_;            // not where the gradients of each microbatch have a buffer of their own
  std::map<int, int> first_microbatch_;  // of each stage: the first one whose weight gradients are computed
  std::map<Key, CallTrace> calls_;
  std::map<int, Saved> saved_;  // by stage
};

}  // namespace echelon
