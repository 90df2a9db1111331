// A schedule as the search reads it a million times: passes in few bytes, the most of them that a rank has in flight,
// and the clock of a step on them.
#pragma once

#include "plan/bounds/unit_costs.h"

#include <cstdint>
#include <vector>

namespace echelon {

struct CompactPass {
  PassKind kind{};
  std::uint16_t stage = 0;  // among all
  std::uint32_t microbatch = 0;
};

struct CompactSchedule {
  std::vector<std::vector<CompactPass>> ranks;
  std::vector<int> rank_of_stage;
  int num_microbatches = 0;
  BackwardKinds backward{};

  [[nodiscard]] int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
};

[[nodiscard]] CompactSchedule compact(const Schedule& schedule, BackwardKinds backward);

/// Seconds of every pass of a stage.
using StageSeconds = std::vector<std::array<double, num_pass_kinds>>;

/// When each rank ends its last pass, if passes wait for data and for each other alone: no run of the schedule is
/// faster.
[[nodiscard]] std::vector<double> last_pass_ends(const CompactSchedule& schedule, const StageSeconds& seconds,
                                                 double transfer_seconds);

}  // namespace echelon
