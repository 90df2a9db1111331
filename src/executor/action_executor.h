// Executes the actions of a rank's program, one at a time. The engine runs them on planned memory, and the blueprint on
// buffers without data, so that what is traced, typed, timed and run is the same code.
#pragma once

#include "comm/mesh.h"
#include "executor/buffers.h"
#include "executor/model_part.h"
#include "executor/scalars.h"
#include "optim/state_parts.h"

#include <map>
#include <span>
#include <utility>
#include <vector>

namespace echelon {

/// The tokens of a step on the host, microbatch after microbatch: [microbatches, B, T], and what else a Microbatch has
/// of them. Null pointers where the backend reads no data.
struct HostBatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  const std::int32_t *key_begin = nullptr, *key_end = nullptr;  // as those of Microbatch
  const MaskShape* mask_shapes = nullptr;                       // [microbatches, windows, blocks]
  const std::int32_t *rows_by_position = nullptr, *rows_by_rank = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* places = nullptr;
  const KeyTransfers* key_transfers = nullptr;  // [microbatches, windows, B], of LayerOptions::skips_unseen_keys
};

/// What a step is given and what it returns.
struct StepValues {
  bool trains = true;
  bool has_loss_scale = false;
  double max_norm = 0;  // 0: no clipping
  AdamWOptions adamw = {};
  HostBatch batch = {};
  StepScalars given = {};  // uploaded by load_batch
  StepScalars read = {};   // up to its grad_norm, downloaded by report
  // Of a training step with mixtures of experts, downloaded by report: RouterState over all ranks.
  std::vector<double> router_sums = {};
  std::vector<float> router_bias = {};       // of the next step
  std::vector<double> exchange_counts = {};  // ExchangeCounts of each layer, where experts are over ranks
  ExpertLoads* expert_loads = nullptr;       // as that of Microbatch
};

/// What actions are executed with. All of it outlives the executor.
struct ExecutorParts {
  ModelPart& model;
  Ops& ops;
  Mesh& mesh;
  RepeatedCalls* repeated = nullptr;  // of a trace
};

class ActionExecutor {
 public:
  /// `config` gives the sizes of the batch. It must outlive the executor.
  ActionExecutor(const RunConfig& config, const ExecutorParts& parts);

  /// Starts a run of a program: its actions work on these buffers and values, which must outlive the run.
  void start(Buffers& buffers, StepValues& values);
  /// Starts the action. Returns the communication that it leaves in progress; dependent actions wait for it.
  [[nodiscard]] std::vector<Pending> perform(const Action& action);

  /// Of the last run, by layers with experts.
  [[nodiscard]] std::span<const ExpertTraffic> expert_traffic() const { return expert_traffic_; }

  /// Of the global batch, if no target is ignored.
  [[nodiscard]] double expected_targets() const;
  /// Elements of the rank's scalars buffer.
  [[nodiscard]] Tensor scalars(std::int64_t first, std::int64_t count);

 private:
  void load_batch();
  void take_snapshot(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void open_gradients(const Action& action);
  [[nodiscard]] std::vector<Pending> gather_parameters(const Action& action);
  [[nodiscard]] std::vector<Tensor> converted(const Action& action);
  void clip();
  void report();
  /// The bias and the loads of the next step, from sums over all ranks.
  void balance_experts();
  void sum_exchanges();

  [[nodiscard]] Stage::Gradients gradients_of(int stage, int microbatch);
  [[nodiscard]] Microbatch microbatch(int index);
  [[nodiscard]] RouterState router();
  [[nodiscard]] bool has_router_sums() const { return values_->trains && model_.router_sums_sizes().num_dims() > 0; }
  [[nodiscard]] std::span<const KeyTransfers> key_transfers(int microbatch) const;
  [[nodiscard]] std::span<const MaskShape> mask_shapes(int microbatch) const;
  [[nodiscard]] Tensor boundary(BufferKey key);
  [[nodiscard]] Tensor loss_scale();
  [[nodiscard]] Tensor of_batch(BufferRole role);
  [[nodiscard]] Pending send(const Action& action, BufferKey from);
  [[nodiscard]] Pending receive(const Action& action, BufferKey into);
  [[nodiscard]] Pending all_reduce(const Group& group, Tensor x);
  [[nodiscard]] ShardedUnit& unit(const Action& action) { return model_.unit(action); }

  const RunConfig& config_;
  ModelPart& model_;
  Ops& ops_;
  Mesh& mesh_;
  RepeatedCalls* repeated_;
  Buffers* buffers_ = nullptr;
  StepValues* values_ = nullptr;
  std::vector<ExpertTraffic> expert_traffic_;     // of this run
  std::map<std::pair<int, int>, Stash> stashes_;  // by stage and microbatch
  // Of the units whose state a snapshot copies; made by the first one.
  std::map<const ShardedUnit*, std::vector<SnapshotRun>> copied_;
};

/// One tensor per bucket of a unit: of all of it, or of the part that this rank owns. `key` gives role and action.
/// Those of gradients are empty for frozen buckets.
[[nodiscard]] std::vector<Tensor> whole_buffers(Buffers& buffers, BufferKey key, const ShardedUnit& unit, DType dtype);
[[nodiscard]] std::vector<Tensor> owned_buffers(Buffers& buffers, BufferKey key, const ShardedUnit& unit, DType dtype);

}  // namespace echelon
