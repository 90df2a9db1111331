// What a plan has for the blocks of one pipeline stage.
#pragma once

#include "blueprint/blueprint.h"

#include <algorithm>
#include <map>

namespace echelon::testing {

inline constexpr int middle_stage = 1;  // of three stages: blocks alone

/// Of the middle stage, whatever the schedule.
struct StageBytes {
  std::int64_t stash = 0, input_stash = 0, gradient_stash = 0;
  std::map<ActionKind, std::int64_t> workspace = {};
};

inline StageBytes planned_stage(const RunConfig& config, const Schedule& schedule, int tp_rank) {
  const Blueprint blueprint(config);
  Coordinates coordinates{};
  coordinates[static_cast<std::size_t>(Axis::pp)] = middle_stage;
  coordinates[static_cast<std::size_t>(Axis::tp)] = tp_rank;
  const int rank = blueprint.mesh().rank_of(coordinates);
  const ModelPart part = make_model_part(config, schedule, rank);
  const Program program = lower(schedule, blueprint.lowering(ProgramKind::training))[middle_stage];
  UnitTraces units(config);
  const RankTrace trace(config, rank, part, program, units);
  const auto& [stash, input_stash, gradient_stash] = trace.saved(middle_stage);
  StageBytes bytes = {.stash = stash.num_bytes + input_stash.num_bytes,
                      .input_stash = input_stash.num_bytes,
                      .gradient_stash = gradient_stash.num_bytes};
  for (const Action& action : program) {
    std::int64_t& most = bytes.workspace[action.kind];
    most = std::max(most, trace.of(action).workspace_bytes);
  }
  return bytes;
}

}  // namespace echelon::testing
