// The loop of one rank over the steps of a run: learning rate, step, log, evaluation, saving.
#pragma once

#include "data/dataset_batches.h"
#include "engine/rank_run.h"
#include "engine/train.h"

#include <chrono>

namespace echelon {

/// What a trainer works with; all of it outlives the trainer.
struct TrainerParts {
  RankRun& run;
  Mesh& mesh;
  Ops& ops;
  const DatasetBatches& training;
  const DatasetBatches* validation = nullptr;
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainerParts& parts, const TrainOptions& options)
      : config_(config), parts_(parts), options_(options), sent_before_(parts.mesh.sent_bytes()) {}

  /// Every rank of the mesh calls it; the result is the same on all but for what rank 0 alone knows (times, folders).
  TrainResult run();

 private:
  [[nodiscard]] StepInput input_of(std::int64_t step) const;
  [[nodiscard]] StepReport report_of(std::int64_t step, const StepResult& result, double seconds);
  void evaluate(std::int64_t step);
  void save(std::int64_t step);

  const RunConfig& config_;
  TrainerParts parts_;
  const TrainOptions& options_;
  TrainResult result_;
  std::map<Group, std::int64_t> sent_before_;
};

}  // namespace echelon
