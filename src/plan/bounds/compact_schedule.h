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

/// A stage as the clock sees it.
struct ClockedStage {
  std::array<double, num_pass_kinds> seconds = {}, least_block_seconds = {};  // of the whole stage; of one block
  double num_blocks = 0;
  double gather = 0, reduce = 0;  // seconds of any of its blocks on the lane of the data axes
};

/// What the data axes add to every pass, on a lane of their own.
struct PassLane {
  bool has_gathers = false, has_reductions = false;
  bool gathers_each_pass = false;  // otherwise a stage's parameters stay gathered after its first pass
  double begin = 0;                // of the first stage's first pass; gathers of other ranks may come earlier
};

/// The earliest ends of what ranks do in a step.
struct PassEnds {
  std::vector<double> ranks;  // the last pass
  std::vector<double> lanes;  // gathers and reductions of passes; empty without a clock
  // Of a stage's last pass, and of the first pass of a rank: the first gradient that is complete; likewise.
  std::vector<double> gradients, first_gradients;
};

/// Passes wait for data and for each other, on the lane for gathers too: no run of the schedule is faster.
[[nodiscard]] PassEnds clocked_ends(const CompactSchedule& schedule, const std::vector<ClockedStage>& stages,
                                    double transfer_seconds, const PassLane& lane);

}  // namespace echelon
