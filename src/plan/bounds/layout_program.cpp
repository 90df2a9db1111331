#include "plan/bounds/layout_program.h"

#include "predict/step/step_lanes.h"
#include "schedule/timeline.h"

#include <numeric>

namespace echelon {
namespace {

constexpr int never = -1;

}  // namespace

LayoutProgram::LayoutProgram(const Schedule& schedule, const LoweringOptions& lowering)
    : options(lowering),
      rank_of_stage(schedule.rank_of_stage),
      programs(lower(schedule, lowering)),
      first_to_compute(rank_of_stage.size(), never) {
  for (const Program& program : programs)
    for (const Action& action : program)
      if (computes_weight_gradients(action.kind) && first_to_compute[static_cast<std::size_t>(action.stage)] == never)
        first_to_compute[static_cast<std::size_t>(action.stage)] = action.microbatch;
  place_on_lanes();
  play = ProgramPlay(work);
  for (const Program& program : programs) lifetimes.push_back(lifetimes_of(program, options, rank_of_stage));
}

/// As in a simulated step with identical replicas: only actions that cross stages need other ranks.
void LayoutProgram::place_on_lanes() {
  std::vector<int> all(programs.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int> ends = {rank_of_stage.front(), rank_of_stage.back()};
  std::vector<int> alone = {0};
  const auto participants = [&](const Action& action) -> const std::vector<int>& {
    if (action.kind == ActionKind::clip || action.kind == ActionKind::report) return all;
    return action.kind == ActionKind::sum_tied ? ends : alone;
  };
  StepLanes lanes(work, {});
  for (const int rank : all) {
    RankWork& own = work.ranks.emplace_back();
    own.program = &programs[static_cast<std::size_t>(rank)];
    lanes.start(rank, 0);
    alone.front() = rank;
    own.works.reserve(own.program->size());
    for (const Action& action : *own.program) {
      switch (lane_of(action.kind)) {
        case Lane::compute: own.works.push_back(lanes.of(action)); break;
        case Lane::transfer: own.works.push_back(lanes.transfer(action, peer_of(action))); break;
        case Lane::collective: own.works.push_back(lanes.collective(action, participants(action))); break;
      }
    }
    own.num_lanes = lanes.num_lanes();
  }
}

int LayoutProgram::peer_of(const Action& transfer) const {
  return rank_of_stage[static_cast<std::size_t>(other_stage(transfer))];
}

}  // namespace echelon
