// Predicted and measured time of a run: in every line of metrics.jsonl, and at the end of every `echelon train`.
#pragma once

#include "schedule/timeline.h"
#include "train/train.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct TrainPrediction {
  std::int64_t predicted_memory_bytes = 0;  // the planned arena of rank 0
  std::int64_t measured_memory_bytes = 0;   // as allocated
  std::optional<double> predicted_step_seconds = {};
  std::optional<double> measured_step_seconds = {};  // the median, without the first step if there are more
  Timeline predicted_timeline = {};                  // of the ranks of a pipeline
  // The source of the machine's figures, or the reason why the step is not predicted.
  std::string source = {};
};

/// Made before the run: from metrics.machine if it has measured operations, else from the run's operations, measured
/// once here (at most some tenths of a second). A step of ranks that are processes is predicted if metrics.machine has
/// their collectives and each has its own core on this host.
[[nodiscard]] TrainPrediction predict_training(const RunConfig& config);
void set_measured(TrainPrediction& prediction, const std::vector<StepReport>& steps);

/// Two lines.
[[nodiscard]] std::string to_text(const TrainPrediction& prediction);
void add_to(nlohmann::ordered_json& json, const TrainPrediction& prediction);

}  // namespace echelon
