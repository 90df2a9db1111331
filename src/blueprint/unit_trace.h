// What one unit of a stage computes, sends and saves: traced once for all units of its kind. What an action of a stage
// costs is folded from its units, by the blueprint of a rank and by the search for a layout.
#pragma once

#include "blueprint/call_trace.h"
#include "executor/unit_part.h"
#include "schedule/action.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>

namespace echelon {

enum class PassKind : std::uint8_t { forward, backward, backward_input, backward_weight };
inline constexpr int num_pass_kinds = 4;
[[nodiscard]] bool computes_weight_gradients(PassKind pass);
/// None of an action that is no pass.
[[nodiscard]] std::optional<PassKind> pass_of(ActionKind kind);

using PassTraces = std::array<CallTrace, num_pass_kinds>;  // by PassKind

/// The passes of a unit through one microbatch. Where microbatches add up, the weight gradients of the first one are
/// written and those of the others are added to them.
struct UnitPasses {
  PassTraces first = {}, later = {};  // later: those that compute weight gradients
  RegionUse stash = {};               // saved by forward, until the weights' gradients are computed
  RegionUse input_stash = {};         // until the input's gradient is
  RegionUse gradient_stash = {};      // saved between the two halves of backward

  [[nodiscard]] const CallTrace& of(PassKind kind, bool is_first) const {
    return (is_first || !computes_weight_gradients(kind) ? first : later)[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::int64_t workspace_bytes(std::size_t kind) const {
    return std::max(first[kind].workspace_bytes, later[kind].workspace_bytes);
  }
};

/// Is told of a pass once it is traced, and may take its events. `is_first`: one of UnitPasses::first.
using TellPass = std::function<void(PassKind pass, bool is_first, CallTrace& trace)>;

/// What a call of RepeatedCalls recorded; its waits count its own starts.
struct RecordedCall {
  std::vector<TraceEvent> events = {};
  std::size_t num_starts = 0;
  std::int64_t workspace_bytes = 0;
};
/// Of one rank.
using RecordedCalls = std::map<RepeatedCalls::Key, RecordedCall>;

/// What is done to the gradients, the optimizer state and the parameters of a unit. Of clip it has the squares alone,
/// without their sum over all ranks.
using StateTraces = std::map<ActionKind, CallTrace>;

/// The traces of all kinds of units on a rank that were asked for, and on ranks of other pipeline stages, which have
/// the same. Not thread-safe.
class UnitTraces {
 public:
  explicit UnitTraces(RunConfig config) : config_(std::move(config)) {}

  /// Without `trains` of forward alone, as an evaluation has it.
  [[nodiscard]] const UnitPasses& passes(const UnitKind& kind, int rank, bool trains = true);
  /// The same, told one by one and not kept: a long ring has thousands of events. What is returned has none.
  UnitPasses tell_passes(const UnitKind& kind, int rank, bool trains, const TellPass& told);
  /// passes().first of training: half the work, and not kept.
  [[nodiscard]] PassTraces first_passes(const UnitKind& kind, int rank) const;
  void tell_first_passes(const UnitKind& kind, int rank, const TellPass& told) const;
  [[nodiscard]] const StateTraces& state(const UnitKind& kind, int rank);

 private:
  using Key = std::tuple<UnitKind, int, bool>;
  [[nodiscard]] Key key_of(const UnitKind& kind, int rank, bool trains) const;

  RunConfig config_;
  std::map<Key, UnitPasses> passes_;
  std::map<int, RecordedCalls> recorded_;  // by rank
  std::map<Key, StateTraces> states_;
};

/// What actions of a rank cost that belong to no unit: transfers between stages, the step's batch and scalars. `part`
/// may have no stages. `trains`: of a training step, or of an evaluation.
[[nodiscard]] CallTrace trace_without_units(const RunConfig& config, int rank, ModelPart& part, const Action& action,
                                            bool trains);

}  // namespace echelon
