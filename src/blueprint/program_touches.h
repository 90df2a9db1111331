// Which addresses the operations of a program touch: the program is executed on the addresses of its memory plan,
// without data.
#pragma once

#include "blueprint/blueprint.h"

#include <span>

namespace echelon {

/// What an operation reads or writes, by its place in the rank's arena.
struct Touch {
  std::int64_t offset = 0, num_bytes = 0;
  bool operator==(const Touch&) const = default;
};

class TouchListener {
 public:
  virtual ~TouchListener() = default;
  virtual void begins(const Action& action) = 0;
  /// In the order of the action's trace. What is read and written is in `touches` once.
  virtual void performed(const OpRecord& operation, std::span<const Touch> touches) = 0;
  /// By this rank, in groups of one rank too.
  virtual void started(const CommRecord& /*communication*/) {}
  /// For other ranks.
  virtual void waited() = 0;
};

/// Executes the program of a kind once for each of the listeners, one run after the other in the same memory. `loads`:
/// of experts in these runs; null: those that are planned.
void execute_on_addresses(const Blueprint& blueprint, const RankBlueprint& rank, ProgramKind kind,
                          std::span<TouchListener* const> runs, ExpertLoads* loads = nullptr);

}  // namespace echelon
