// The loop of one rank over the steps of a run: learning rate, step, log, evaluation, saving.
#pragma once

#include "data/dataset_batches.h"
#include "engine/loss_scaler.h"
#include "engine/rank_run.h"
#include "engine/step_recorder.h"
#include "measure/host_rates.h"
#include "train/train.h"

#include <chrono>

namespace echelon {

/// The inputs of a trainer; all of them outlive it.
struct TrainerContext {
  const Blueprint& blueprint;
  RankView rank;
  Mesh& host_mesh;  // of the same ranks, for buffers in host memory
  const DatasetBatches& training;
  const DatasetBatches* validation = nullptr;
  RunObserver& observer;
  const std::atomic<bool>* stop_requested = nullptr;
  StepRecorder* recorder = nullptr;      // of the steps that metrics.trace names
  std::optional<HostRates> host = {};    // where known
  std::int64_t device_memory_bytes = 0;  // of a GPU
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainerContext& context)
      : config_(config), context_(context), scaler_(config), traced_(parse_traced_steps(config.metrics.trace)) {}

  /// Collective over the mesh. The result is the same on all ranks, except for what only rank 0 knows (times, folders).
  TrainResult run();

 private:
  [[nodiscard]] StepResult run_step(std::int64_t step);
  void require_finite(std::int64_t step, const StepResult& result) const;
  void write_trace();
  [[nodiscard]] StepInput input_of(std::int64_t step) const;
  [[nodiscard]] StepReport report_of(std::int64_t step, const StepResult& result, double seconds);
  void evaluate(std::int64_t step);
  /// Throws Failure if the save of the last step fails, or the third one in a row.
  void save(std::int64_t step, bool is_last);
  struct SaveFailure {
    std::string sentence;  // of this rank, or which ranks failed
    bool is_own = false;
  };
  /// Collective. None if all ranks have written.
  [[nodiscard]] std::optional<SaveFailure> write_model(const std::filesystem::path& folder);
  void prune(std::int64_t step);

  const RunConfig& config_;
  TrainerContext context_;
  LossScaler scaler_;
  StepRange traced_;
  TrainResult result_;
  std::map<Group, std::int64_t> sent_before_;  // the current step, as well as the next one
  std::int64_t faults_before_ = 0;
  int failed_saves_ = 0;  // in a row
};

}  // namespace echelon
