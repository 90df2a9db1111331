// The programs of a layout as a search simulates them: lowered once for all layouts that have the same schedule, stages
// and data-parallel configuration, with every action's lane and the lifetimes of buffers. What they take and hold is
// folded from the units.
#pragma once

#include "blueprint/lifetimes.h"
#include "plan/bounds/program_play.h"
#include "schedule/lowering/lower.h"

#include <vector>

namespace echelon {

struct LayoutProgram {
  LayoutProgram(const Schedule& schedule, const LoweringOptions& options);
  LayoutProgram(const LayoutProgram&) = delete;
  LayoutProgram& operator=(const LayoutProgram&) = delete;

  LoweringOptions options;
  std::vector<int> rank_of_stage;
  std::vector<Program> programs;                       // by pipeline rank
  StepWork work;                                       // its seconds are to be filled in
  ProgramPlay play;                                    // of this work
  std::vector<std::vector<BufferLifetime>> lifetimes;  // by pipeline rank
  // By stage: the microbatch whose weight gradients are computed first.
  std::vector<int> first_to_compute;
  [[nodiscard]] int peer_of(const Action& transfer) const;  // the pipeline rank at the other end

 private:
  void place_on_lanes();
};

}  // namespace echelon
