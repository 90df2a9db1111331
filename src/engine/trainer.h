// The loop of one rank over the steps of a run: learning rate, step, log, evaluation, saving.
#pragma once

#include "data/dataset_batches.h"
#include "engine/host_rates.h"
#include "engine/loss_scaler.h"
#include "engine/rank_run.h"
#include "engine/step_recorder.h"
#include "engine/train.h"

#include <chrono>

namespace echelon {

/// What a trainer works with; all of it outlives the trainer.
struct TrainerParts {
  const Blueprint& blueprint;
  RankRun& run;
  Mesh& mesh;
  Mesh& host_mesh;  // of the same ranks, for what lies in the host's memory
  Ops& ops;
  const DatasetBatches& training;
  const DatasetBatches* validation = nullptr;
  StepRecorder* recorder = nullptr;      // of the steps that metrics.trace names
  std::optional<HostRates> host = {};    // where known
  std::int64_t device_memory_bytes = 0;  // of a GPU
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainerParts& parts, const TrainOptions& options)
      : config_(config),
        parts_(parts),
        options_(options),
        scaler_(config),
        traced_(parse_traced_steps(config.metrics.trace)) {}

  /// Every rank of the mesh calls it; the result is the same on all but for what rank 0 alone knows (times, folders).
  TrainResult run();

 private:
  [[nodiscard]] StepResult run_step(std::int64_t step);
  void write_trace();
  [[nodiscard]] StepInput input_of(std::int64_t step) const;
  [[nodiscard]] StepReport report_of(std::int64_t step, const StepResult& result, double seconds);
  void evaluate(std::int64_t step);
  void save(std::int64_t step);

  const RunConfig& config_;
  TrainerParts parts_;
  const TrainOptions& options_;
  LossScaler scaler_;
  StepRange traced_;
  TrainResult result_;
  std::map<Group, std::int64_t> sent_before_;  // the step at hand, like the next one
  std::int64_t faults_before_ = 0;
};

}  // namespace echelon
