// What of the model lies on one rank: its pipeline stage and, per unit, the sharded parameters. Without memory; the blueprint traces it, the engine binds it.
#pragma once

#include "nn/stage.h"
#include "optim/sharded_unit.h"
#include "spec/run_config.h"

#include <memory>
#include <vector>

namespace echelon {

struct ModelPart {
  LayerOptions options;
  StageLayers layers;
  int stage_index = 0;
  std::unique_ptr<Stage> stage;
  std::vector<ShardedUnit> units;  // one per unit of the stage, and one more for the tied weight if the stage has it

  /// Every parameter of this rank, a tied weight once.
  [[nodiscard]] std::vector<Param*> params() const;
  /// Those of which this rank holds the copy that is written to checkpoints: over all ranks each slice once.
  [[nodiscard]] std::vector<const Param*> written_params() const;

  [[nodiscard]] bool is_first() const { return layers.has_embedding; }
  [[nodiscard]] bool is_last() const { return layers.has_head; }
  /// Of x and y between stages.
  [[nodiscard]] Sizes boundary_sizes() const { return {options.num_local_tokens(), options.model.hidden_size}; }
};

/// The part of `rank`. Throws Error for layouts that cannot be cut (heads against tensor_parallel_degree, layers against stages).
[[nodiscard]] ModelPart make_model_part(const RunConfig& config, int rank);

}  // namespace echelon
