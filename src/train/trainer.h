// The loop of one rank over the steps of a run: learning rate, step, log, evaluation, saving.
#pragma once

#include "data/dataset_batches.h"
#include "engine/loss_scaler.h"
#include "engine/rank_run.h"
#include "engine/step_recorder.h"
#include "measure/host_rates.h"
#include "train/save/run_saver.h"
#include "train/train.h"

#include <chrono>

namespace echelon {

/// The inputs of a trainer; all of them outlive it.
struct TrainerContext {
  const Blueprint& blueprint;
  RankView rank;
  Mesh& host_mesh;  // of the same ranks, for buffers in host memory
  const DatasetBatches& training;
  RunScalars start;  // after the step from which training resumes
  RunSaver* saver = nullptr;
  const DatasetBatches* validation = nullptr;
  RunObserver& observer;
  const RunRequests* requests = nullptr;  // on one rank of each process
  StepRecorder* recorder = nullptr;       // of the steps that metrics.trace names
  std::optional<HostRates> host = {};     // where known
  std::int64_t device_memory_bytes = 0;   // of a GPU
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainerContext& context);

  /// Collective over the mesh. The result is the same on all ranks, except for what only rank 0 knows (times, folders).
  TrainResult run();

 private:
  /// Runs a step, checks and reports it.
  [[nodiscard]] StepResult make_step(std::int64_t step);
  [[nodiscard]] StepResult run_step(std::int64_t step);
  /// Warns once if the step is faster than the peak.
  void report_step();
  void require_finite(std::int64_t step, const StepResult& result) const;
  /// Of the first layer whose router had NaN; empty: of none.
  [[nodiscard]] std::string layer_with_nan() const;
  [[nodiscard]] bool is_traced(std::int64_t step) const {
    return context_.recorder != nullptr && traced_.contains(step);
  }
  void write_trace();
  [[nodiscard]] StepInput input_of(std::int64_t step);
  [[nodiscard]] StepReport report_of(std::int64_t step, const StepResult& result, double seconds);
  /// What was asked of this rank and is not done yet.
  [[nodiscard]] RunRequest asked();
  /// Collective. Returns the request that ended the evaluation before its end.
  RunRequest evaluate(std::int64_t step, bool may_end);
  void ended_step(const StepResult& result);
  /// What a checkpoint has of the routers; a skipped step leaves it.
  void remember_routers();
  void save(SaveReason reason);

  const RunConfig& config_;
  double model_flops_per_token_ = 0, attention_flops_per_token_ = 0;
  double least_flops_ = 0;  // of a second of the last step: attention of the visible half
  TrainerContext context_;
  RunScalars scalars_;  // after the last step
  LossScaler scaler_;
  StepRange traced_;
  TrainResult result_;
  std::map<Group, std::int64_t> sent_before_;  // the current step, as well as the next one
  std::int64_t faults_before_ = 0;
  bool takes_snapshot_ = false;           // the current step
  bool doubts_peak_ = false;              // a step was faster
  int saves_asked_ = 0, saves_done_ = 0;  // among the requests
};

}  // namespace echelon
