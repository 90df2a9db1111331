// The programs of a layout as a search plays them: lowered once for all layouts that have the same schedule, stages and
// way of the data axes, with every action's lane and the lives of buffers. What they take and hold comes from the costs
// of the model's parts.
#pragma once

#include "predict/step/step_events.h"
#include "schedule/lowering/lower.h"

#include <vector>

namespace echelon {

/// From when to when something is held on a rank, in actions. What is small is left out: the owned part of one unit
/// that is converted while replicas sum it.
struct BufferLife {
  enum class What : std::uint8_t {
    stash,
    input_stash,
    gradient_stash,
    boundary,
    gathered_parameters,
    unreduced_gradients,
    converted_gradients,
  };
  What what{};
  int stage = 0;
  int unit = 0;  // of parameters and gradients
  int first = 0, last = 0;
};

struct LayoutProgram {
  LayoutProgram(const Schedule& schedule, const LoweringOptions& options);
  LayoutProgram(const LayoutProgram&) = delete;
  LayoutProgram& operator=(const LayoutProgram&) = delete;

  LoweringOptions options;
  std::vector<int> rank_of_stage;
  std::vector<Program> programs;               // by pipeline rank
  StepWork work;                               // its seconds are to be filled in
  std::vector<std::vector<BufferLife>> lives;  // by pipeline rank
  // By stage: the microbatch whose gradients of the weights are formed first.
  std::vector<int> first_to_form;
  [[nodiscard]] int peer_of(const Action& transfer) const;  // the pipeline rank at the other end
};

}  // namespace echelon
