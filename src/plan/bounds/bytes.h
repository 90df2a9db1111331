// A lower bound of the highest memory use of a rank, in bytes, without a blueprint. Five grades: of a layout; of a
// pipeline with any data axes; of that with any schedule; of degrees with any pipeline; of any layout.
#pragma once

#include "plan/bounds/stages.h"

#include <array>
#include <limits>

namespace echelon {

/// Whether all microbatches go forward before the first one goes back.
[[nodiscard]] constexpr bool holds_all(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::gpipe || schedule == PipelineSchedule::looped_bfs;
}

class PlanBytes {
 public:
  /// It refers to all three.
  PlanBytes(const PlanRequest& request, CostTable& costs, PlanStageTable& stages)
      : request_(&request), costs_(&costs), stages_(&stages) {}

  [[nodiscard]] std::int64_t of_layout(const PlanChoice& choice) {
    return of_layout(choice, costs_->traces(choice.shape, choice.data));
  }
  /// `traces`: of its data axes.
  [[nodiscard]] std::int64_t of_layout(const PlanChoice& choice, const UnitStates& traces);
  /// Without the snapshots of checkpoints, of which no data axes have the least. Where it is more than `enough`, by how
  /// much is not looked for.
  [[nodiscard]] std::int64_t of_pipeline(const PlanComputation& computation,
                                         std::int64_t enough = std::numeric_limits<std::int64_t>::max());
  /// With one microbatch in flight, or all where every order of the schedule's kind has them.
  [[nodiscard]] std::int64_t of_any_schedule(const PlanComputation& computation);
  /// Of parameters, gradients and optimizer states, each held by one rank only.
  [[nodiscard]] std::int64_t of_any_layout() const;
  /// Without activations, over the ranks of a pipeline, whichever it is.
  [[nodiscard]] std::int64_t persistent_of_all_ranks(const PlanShape& shape, const LayerCosts& layers);
  /// The persistent bytes of the rank with most blocks, or of a rank on average, and the inputs of its blocks.
  [[nodiscard]] std::int64_t of_any_pipeline(const PlanShape& shape);
  /// Of the snapshot of a checkpoint on a pipeline rank, which of_layout() has.
  [[nodiscard]] std::int64_t of_snapshot(const PlanChoice& choice, int rank) {
    return snapshot(costs_->traces(choice.shape, choice.data),
                    stages({choice.shape, choice.pipeline, choice.recompute}), rank);
  }

 private:
  /// The highest memory use during passes: of any pass; of a forward pass of a block, and of one that computes weight
  /// gradients, both without what the data axes add.
  struct Passing {
    std::int64_t any = 0;
    struct Block {
      std::int64_t forward = 0, weights = 0;
    };
    std::array<Block, 2> blocks = {};  // of any stage, of those in which every block has experts
    // During a block of one pass: the blocks of stages that have microbatches in flight, and bytes. With most blocks
    // and with most bytes; of passes that compute weight gradients and of others.
    struct Open {
      std::int64_t num_blocks = 0, num_mixtures = 0, bytes = 0;
      bool computes_weights = false, in_mixture = false;
    };
    std::array<Open, 4> open = {};
  };
  [[nodiscard]] const LayerCosts& layers(const PlanComputation& computation);
  [[nodiscard]] const PlanStages& stages(const PlanComputation& computation);
  [[nodiscard]] const std::vector<Passing>& passing(const PlanComputation& computation, const LayerCosts& costs,
                                                    const PlanStages& all);
  struct States {
    const UnitStates& of_units;
    std::int64_t of_no_unit = 0;  // constants and the step's batch
  };
  [[nodiscard]] static States states(const PlanShape& shape, const LayerCosts& layers, const UnitStates& traces);
  [[nodiscard]] const UnitStates& most_sharded(const PlanShape& shape);
  /// Of a rank with so many blocks.
  struct RankUnits {
    std::int64_t num_blocks = 0, num_mixtures = 0;
    bool is_first = false, is_last = false;
  };
  [[nodiscard]] static std::int64_t persistent(const States& states, const RankUnits& units);
  [[nodiscard]] static std::int64_t persistent(const States& states, const PlanStages& stages, int rank);
  [[nodiscard]] std::int64_t snapshot(const UnitStates& state, const PlanStages& stages, int rank) const;
  [[nodiscard]] static std::int64_t beside_passes(const PlanChoice& choice, const UnitStates& traces,
                                                  const Passing& passing);
  [[nodiscard]] static std::int64_t gathered(const PlanChoice& choice, const UnitStates& traces,
                                             const Passing& passing);
  static void count_open(Passing& peak, const Passing::Open& now);

  const PlanRequest* request_;
  CostTable* costs_;
  PlanStageTable* stages_;
  PlanShape shape_ = {};  // that was asked for last
  const UnitStates* most_sharded_ = nullptr;
  std::vector<Passing> passing_;  // by rank, of the stages with this number
  std::int64_t number_ = 0;
};

}  // namespace echelon
