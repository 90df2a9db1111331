#include "schedule/schedule.h"

namespace echelon {

std::vector<int> Schedule::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages; ++stage) {
    if (rank_of_stage[stage] == rank) stages.push_back(stage);
  }
  return stages;
}

void Schedule::add(ActionKind kind, int stage, int microbatch) {
  ranks[rank_of_stage[stage]].push_back({.kind = kind, .stage = stage, .microbatch = microbatch});
}

Schedule empty_loop_schedule(int num_ranks, int num_stages, int num_microbatches) {
  Schedule schedule{std::vector<ComputeOrder>(num_ranks), num_stages, num_microbatches, {}};
  for (int stage = 0; stage < num_stages; ++stage) schedule.rank_of_stage.push_back(stage % num_ranks);
  return schedule;
}

Schedule empty_v_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule{std::vector<ComputeOrder>(num_ranks), 2 * num_ranks, num_microbatches, {}};
  for (int rank = 0; rank < num_ranks; ++rank) schedule.rank_of_stage.push_back(rank);
  for (int rank = num_ranks - 1; rank >= 0; --rank) schedule.rank_of_stage.push_back(rank);
  return schedule;
}

}  // namespace echelon
