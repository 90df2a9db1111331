// Predicted and measured time of a run: in every line of metrics.jsonl, and at the end of every `echelon train`.
#pragma once

#include "predict/saving/predicted_save.h"
#include "schedule/timeline.h"
#include "train/train.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct TrainPrediction {
  std::int64_t predicted_memory_bytes = 0;  // the planned arena of rank 0
  std::int64_t measured_memory_bytes = 0;   // as allocated; 0: no step was made
  std::optional<double> predicted_step_seconds = {};
  // The median, without the first step and those with a snapshot if there are more; and of those with one.
  std::optional<double> measured_step_seconds = {}, measured_snapshot_step_seconds = {};
  std::optional<PredictedSave> save = {};            // none: the run saves nothing
  std::optional<double> measured_save_seconds = {};  // the median of those that training waited for
  Timeline predicted_timeline = {};                  // of the ranks of a pipeline
  // The source of the machine's figures, or the reason why the step is not predicted.
  std::string source = {};

  /// Of a step that takes a snapshot or does not.
  [[nodiscard]] std::optional<double> seconds_of_step(bool takes_snapshot) const {
    return takes_snapshot && save && save->snapshot ? save->snapshot->step_seconds : predicted_step_seconds;
  }
};

/// Made before the run: from metrics.machine if it has measured operations, else from the run's operations, measured
/// once here (at most some tenths of a second). A step of ranks that are processes is predicted if metrics.machine has
/// their collectives and each has its own core on this host. Documents that attention ends at are those of the first
/// batches.
[[nodiscard]] TrainPrediction predict_training(const RunConfig& config);
/// On the GPUs of metrics.machine, at the rates of `simulate` and `plan`: those that software has in common, where the
/// file's were not measured on it.
[[nodiscard]] TrainPrediction predict_on_gpus(const Blueprint& blueprint);
/// `save_seconds`: of the checkpoints that training waited for.
void set_measured(TrainPrediction& prediction, const std::vector<StepReport>& steps,
                  const std::vector<double>& save_seconds);

/// Two lines, and one for each of a checkpoint and a step with a snapshot that was measured.
[[nodiscard]] std::string to_text(const TrainPrediction& prediction);
void add_to(nlohmann::ordered_json& json, const TrainPrediction& prediction);

}  // namespace echelon
