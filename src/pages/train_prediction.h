// What a run is predicted to take, beside what it takes: in every line of metrics.jsonl, and said at the end of every
// `echelon train`.
#pragma once

#include "schedule/timeline.h"
#include "train/train.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct TrainPrediction {
  std::int64_t predicted_memory_bytes = 0;  // the arena of rank 0, by the plan
  std::int64_t measured_memory_bytes = 0;   // as it was allocated
  std::optional<double> predicted_step_seconds = {};
  std::optional<double> measured_step_seconds = {};  // the median, without the first step where there are more
  Timeline predicted_timeline = {};                  // of the ranks of a pipeline
  // What the machine's figures come from; of a step that is not predicted, why not.
  std::string source = {};
};

/// Made before the run, from metrics.machine where it holds measured operations, or else from the run's own operations,
/// each measured once here (some tenths of a second at most). A step of ranks that are processes is predicted where
/// metrics.machine has their collectives, and each has a core of its own on this host.
[[nodiscard]] TrainPrediction predict_training(const RunConfig& config);
void set_measured(TrainPrediction& prediction, const std::vector<StepReport>& steps);

/// Two lines.
[[nodiscard]] std::string to_text(const TrainPrediction& prediction);
void add_to(nlohmann::ordered_json& json, const TrainPrediction& prediction);

}  // namespace echelon
