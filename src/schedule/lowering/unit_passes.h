// What lowering sees of a model: units, whose parameters are gathered and reduced as a whole, and the passes that use
// them.
#pragma once

#include "schedule/lowering/lower.h"

#include <compare>
#include <vector>

namespace echelon {

/// The parameters of one unit of a stage; unit num_units: the stage's tied weight.
struct UnitKey {
  int stage = 0;
  int unit = 0;
  auto operator<=>(const UnitKey&) const = default;
};

/// The units whose parameters a pass reads, and whose gradients it computes, if any. A borrowed tied weight is a unit
/// of the stage that owns it.
[[nodiscard]] std::vector<UnitKey> units_of(const Action& pass, const LoweringOptions& options);

/// Passes of one rank, in order, where each goes through the whole stage or is followed by those of the stage's other
/// units.
using UnitPasses = std::vector<Action>;

/// `order`, with those passes split by units that need it: passes with gathered parameters, and passes whose gradients
/// are reduced.
[[nodiscard]] UnitPasses by_units(const ComputeOrder& order, const LoweringOptions& options);

/// Whether this is the first or the last unit of its pass (of a whole stage: both). Forward passes go from the first
/// unit to the last, others back.
[[nodiscard]] bool begins_pass(const Action& pass, const LoweringOptions& options);
[[nodiscard]] bool ends_pass(const Action& pass, const LoweringOptions& options);

}  // namespace echelon
