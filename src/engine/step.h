// One step of a rank: a loop over its program. step.cpp is the whole training step.
#pragma once

#include "backend/work_recorder.h"
#include "data/batch_source.h"
#include "engine/batch/rank_batch.h"
#include "engine/rank_model.h"
#include "engine/run_requests.h"
#include "executor/action_executor.h"

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace echelon {

/// What a step is given. All ranks give the same, but for the request.
struct StepInput {
  const BatchSource* batches = nullptr;
  std::int64_t first_sequence = 0;  // of the global batch, in the source
  AdamWOptions adamw;               // of a training step
  double max_norm = 0;              // 0: no clipping
  // What gradients are multiplied by until they are clipped; then a step whose gradients overflow is skipped.
  std::optional<double> loss_scale = {};
  RunRequest request = RunRequest::none;  // what was asked of this rank
  bool has_saved = false;                 // this rank's part of a checkpoint
  bool has_next = false;                  // the next training step has the sequences after these
};

/// The same on every rank.
struct StepResult {
  double loss = 0;       // mean over the valid targets of the global batch, in nats
  double grad_norm = 0;  // before clipping
  double num_targets = 0;
  bool is_skipped = false;  // gradients overflowed under a loss scale: weights and optimizer states are what they were
  RunRequest request = RunRequest::none;  // the highest of any rank
  std::int64_t num_saved = 0;             // ranks that have saved their part
};

/// What attention of this rank computes and sends for a batch, from the boundaries of its documents: kernels and the
/// transport count the same. Planned is what the causal mask and windows alone leave.
struct AttentionWork {
  std::int64_t pairs = 0, planned_pairs = 0;                        // (query, key), of one head and all layers
  std::int64_t recomputed_pairs = 0, planned_recomputed_pairs = 0;  // of training, once more
  std::int64_t sent_bytes = 0, planned_sent_bytes = 0;              // over the ranks of context parallelism

  AttentionWork& operator+=(const AttentionWork& more);
};

/// Called when gradients are reduced, before the update. Times `factor` they are the gradients of the mean loss.
using GradientObserver = std::function<void(RankModel& model, double factor)>;

/// The part of an action that runs: the action itself, or the wait for the communication that it started.
enum class ActionPart : std::uint8_t { perform, wait };

/// Receives callbacks as a step runs, on the rank's own thread. Parts follow each other; they do not nest.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void begins(const Action& action, ActionPart part) = 0;
  virtual void ends() = 0;
};

/// Follows a step that takes a snapshot, on the rank's own thread.
class SnapshotReader {
 public:
  virtual ~SnapshotReader() = default;
  /// From now on what was copied may be read, and of other units the state itself.
  virtual void taken() = 0;
  /// Returns when the state of the unit is not read any longer.
  virtual void release(const ShardedUnit& unit) = 0;
};

/// What a step works on; all of it outlives the step.
struct RankParts {
  RankMemory& memory;
  RankModel& model;
  Ops& ops;
  Mesh& mesh;
  WorkRecorder* recorder = nullptr;  // of ops and mesh; null: every step is enqueued action by action
};

class Step {
 public:
  Step(const Blueprint& blueprint, const RankBlueprint& rank, const RankParts& parts);

  /// Runs the rank's program. Throws what an action throws, with the action's name in front, and PeerAborted as it is.
  /// With a recorder, a training step is recorded the second time it runs and replayed from then on, unless the step
  /// has an observer.
  StepResult run(ProgramKind kind, const StepInput& input);

  void observe_gradients(GradientObserver observer) { observer_ = std::move(observer); }
  /// Of the last step.
  [[nodiscard]] PairShares pair_shares() const { return batch_.pair_shares(); }

  /// Of all steps of a kind: what experts on other ranks made this rank send.
  [[nodiscard]] const ExpertTraffic& expert_traffic(ProgramKind kind) const {
    return expert_traffic_[static_cast<std::size_t>(kind)];
  }
  /// Of all steps of a kind from now on. `loads` outlives them.
  void record_loads(ProgramKind kind, ExpertLoads& loads) { expert_loads_[static_cast<std::size_t>(kind)] = &loads; }

  /// Of the last step, where it trained: RouterState::sums over all ranks, and the bias of the next step.
  [[nodiscard]] const std::vector<double>& router_sums() const { return values_.router_sums; }
  [[nodiscard]] const std::vector<float>& router_bias() const { return values_.router_bias; }
  /// ExchangeCounts of each layer with experts over ranks, likewise; else empty.
  [[nodiscard]] const std::vector<double>& exchange_counts() const { return values_.exchange_counts; }

  /// Of the last step.
  [[nodiscard]] const AttentionWork& attention_work() const { return attention_work_; }
  /// Of all steps of a kind.
  [[nodiscard]] const AttentionWork& attention_work(ProgramKind kind) const {
    return work_of_all_[static_cast<std::size_t>(kind)];
  }

  /// `observer` must outlive the step.
  void observe_actions(StepObserver& observer) { action_observer_ = &observer; }
  /// `reader` outlives the steps that take a snapshot.
  void give_snapshots_to(SnapshotReader& reader) { snapshot_reader_ = &reader; }

 private:
  /// What of a training step's input becomes part of the work that is enqueued; the rest is uploaded.
  struct Constants {
    AdamWOptions adamw;
    double max_norm = 0;
    bool has_loss_scale = false;
    bool operator==(const Constants&) const = default;
  };
  [[nodiscard]] Constants constants() const;

  void perform_all(std::span<const Action> actions);
  /// The action, and the layer and the hop of a ring that it was in.
  [[nodiscard]] std::string place_of(const Action& action) const;
  void replay(std::span<const Action> program);
  void record(std::span<const Action> actions, const Action& next);
  void perform(const Action& action);
  void finish(const Action& action);
  template <class F>
  void observed(const Action& action, ActionPart part, F&& f);

  [[nodiscard]] bool is_last_of_snapshot(const Action& action) const;
  void load_batch();
  /// The sequences of the next step, while a device computes this one.
  void read_ahead();
  void observe_gradients();
  void count_attention_work();
  [[nodiscard]] StepResult result() const;

  const RunConfig& config_;
  const RankBlueprint& rank_;
  RankModel& model_;
  Ops& ops_;
  Mesh& mesh_;
  WorkRecorder* recorder_;
  std::array<ProgramBuffers, num_program_kinds> buffers_;  // by kind of program
  std::array<ContextTraffic, num_program_kinds> traffic_;
  ActionExecutor executor_;
  // The constants of the last training step that was enqueued action by action, and of the recorded one.
  std::optional<Constants> performed_, recorded_;
  GradientObserver observer_;
  StepObserver* action_observer_ = nullptr;
  SnapshotReader* snapshot_reader_ = nullptr;

  ProgramKind kind_ = ProgramKind::training;
  StepInput input_;
  StepValues values_;
  std::vector<std::vector<Pending>> pending_;  // by action
  RankBatch batch_, next_batch_;
  AttentionWork attention_work_;
  std::array<AttentionWork, num_program_kinds> work_of_all_;
  std::array<ExpertTraffic, num_program_kinds> expert_traffic_;
  std::array<ExpertLoads*, num_program_kinds> expert_loads_ = {};
};

}  // namespace echelon
