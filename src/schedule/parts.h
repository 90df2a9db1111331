// What lowering sees of a model: parts, which are gathered and reduced as a whole, and the passes of units that use
// them.
#pragma once

#include "schedule/lower.h"

#include <compare>
#include <vector>

namespace echelon {

/// The parameters of one unit of a stage; unit num_units: the stage's tied weight.
struct Part {
  int stage = 0;
  int unit = 0;
  auto operator<=>(const Part&) const = default;
};

/// The parts whose parameters a pass reads, and whose gradients it forms if it forms any. A borrowed tied weight is the
/// part of the stage that has it.
[[nodiscard]] std::vector<Part> parts_of(const Action& pass, const LoweringOptions& options);

/// Passes of one rank, in order, where each goes through the whole stage or is followed by those of the stage's other
/// units.
using UnitPasses = std::vector<Action>;

/// `order` with the passes unit by unit that must be so: what uses gathered parameters, what is reduced at its end, and
/// every one whose gradients are.
[[nodiscard]] UnitPasses by_units(const ComputeOrder& order, const LoweringOptions& options);

/// Whether this is the first or the last unit of its pass (of a whole stage: both). Forward passes go from the first
/// unit to the last, others back.
[[nodiscard]] bool begins_pass(const Action& pass, const LoweringOptions& options);
[[nodiscard]] bool ends_pass(const Action& pass, const LoweringOptions& options);

}  // namespace echelon
