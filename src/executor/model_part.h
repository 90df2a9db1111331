// The part of the model on one rank: its virtual pipeline stages and the sharded parameters of each unit. It has no
// memory; the blueprint traces it, the engine binds it to memory.
#pragma once

#include "executor/buffers.h"
#include "nn/decoder/stage.h"
#include "optim/sharded_unit.h"
#include "schedule/schedule.h"
#include "spec/config/run_config.h"

#include <array>
#include <memory>
#include <vector>

namespace echelon {

/// What a rank is given of a batch: HostBatch.
inline constexpr std::array batch_roles = {
    BufferRole::tokens,           BufferRole::targets,      BufferRole::key_begin, BufferRole::key_end,
    BufferRole::rows_by_position, BufferRole::rows_by_rank, BufferRole::positions, BufferRole::places};

/// One virtual stage on a rank.
struct StagePart {
  int index = 0;
  StageLayers layers;
  std::unique_ptr<Stage> stage;
  // One per unit of the stage, and one more for a tied weight if the stage has it as its own.
  std::vector<ShardedUnit> units;

  [[nodiscard]] bool is_first() const { return layers.has_embedding; }
  [[nodiscard]] bool is_last() const { return layers.has_head; }
};

struct ModelPart {
  LayerOptions options;
  int pipeline_rank = 0;
  std::vector<int> rank_of_stage;  // of all stages: the pipeline rank that holds it
  std::vector<StagePart> stages;   // those of this rank, ascending

  /// A stage of this rank, by its index among all. Throws Failure if it is on another rank.
  [[nodiscard]] StagePart& stage(int index);
  [[nodiscard]] const StagePart& stage(int index) const;
  /// False for stages beyond the ends, too.
  [[nodiscard]] bool holds(int stage) const;
  /// The pipeline rank that a transfer goes to or comes from.
  [[nodiscard]] int peer_of(const Action& transfer) const;
  [[nodiscard]] bool has_head() const { return holds(static_cast<int>(rank_of_stage.size()) - 1); }

  /// The unit of an action that has one; a tied weight that a stage borrows is that of the first stage.
  [[nodiscard]] ShardedUnit& unit(const Action& action);
  [[nodiscard]] const ShardedUnit& unit(const Action& action) const {
    return const_cast<ModelPart*>(this)->unit(action);
  }
  /// All units of all stages.
  [[nodiscard]] std::vector<ShardedUnit*> units();
  [[nodiscard]] std::vector<const ShardedUnit*> units() const;

  /// Every parameter of this rank, a tied weight once.
  [[nodiscard]] std::vector<Param*> params() const;
  /// Of these the weights that matmuls round to 8 bits, and room for the largest magnitude of each.
  [[nodiscard]] std::vector<Param*> rounded_weights() const;
  [[nodiscard]] Sizes weight_amax_sizes() const;

  /// Of each sequence: windows times blocks of keys.
  [[nodiscard]] std::int64_t num_key_ranges() const;
  /// How many int32 of a microbatch are in one of batch_roles; 0: this model does not read them.
  [[nodiscard]] std::int64_t batch_size(BufferRole role) const;

  /// Of x and y between stages.
  [[nodiscard]] Sizes boundary_sizes() const { return {options.num_local_tokens(), options.model.hidden_size}; }
  /// cos and sin, which all stages of the rank share; empty sizes if the model has no RoPE.
  [[nodiscard]] Sizes rope_table_sizes() const { return stages.front().stage->rope_table_sizes(); }
  [[nodiscard]] Sizes rope_frequency_sizes() const { return stages.front().stage->rope_frequency_sizes(); }

  /// Of RouterState: rows of all layers of the model, on all ranks. Empty sizes for what there is not.
  [[nodiscard]] Sizes router_sums_sizes() const;
  [[nodiscard]] Sizes router_loads_sizes() const;
  [[nodiscard]] Sizes router_bias_sizes() const;
  /// ExchangeCounts of the same layers.
  [[nodiscard]] Sizes exchange_counts_sizes() const;
};

/// The window of the pairs (query, key) by which tokens and sequences are distributed: that of all blocks; 0 where they
/// differ, and no limit.
[[nodiscard]] std::int64_t window_of_all(const RunConfig& config);

/// LayerOptions::windows: those of blocks that need ranges of keys; one as long as the sequence limits nothing (0).
[[nodiscard]] std::vector<std::int64_t> windows_with_ranges(const RunConfig& config);
/// Whether a window limits what some block sees.
[[nodiscard]] bool has_windows(const RunConfig& config);

/// Whether rows of keys that no query sees stay where they are, each block by its own window. In a CUDA graph every
/// step sends the same. Where attention of all blocks is causal alone, a plan has all rows, and all are sent.
[[nodiscard]] bool skips_unseen_keys(const RunConfig& config);

/// How sequences are divided over the ranks of context parallelism.
[[nodiscard]] TokenSplit token_split(const RunConfig& config);
/// What the layers of `rank` are made with.
[[nodiscard]] LayerOptions layer_options(const RunConfig& config, int rank);

/// Adds a stage of `rank` to the part, whose other members are set. Its head borrows `tied_weight`, if there is one.
StagePart& add_stage(ModelPart& part, const RunConfig& config, int rank, int index, const StageLayers& layers,
                     Param* tied_weight);

/// How units are held along the data axes; of a tied weight's two copies both count as the first.
[[nodiscard]] ShardOptions shard_options(const RunConfig& config);

/// The part of `rank`, with the stages that `schedule` places there. Throws Error for layouts that do not divide the
/// model (heads by tensor_parallel_degree, layers by stages).
[[nodiscard]] ModelPart make_model_part(const RunConfig& config, const Schedule& schedule, int rank);

}  // namespace echelon
