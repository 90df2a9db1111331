// What a run was predicted to take, beside what it took: said at the end of every `echelon train`.
#pragma once

#include "engine/train.h"
#include "schedule/timeline.h"

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
  std::string source = {};                           // what the machine's figures come from
};

/// Made after the run, from metrics.machine where it holds measured operations, or else from the run's own operations, each measured once here (some tenths of
/// a second at most). Ranks that are processes get no prediction of time.
[[nodiscard]] TrainPrediction predict_training(const RunConfig& config, const std::vector<StepReport>& steps);

/// Two lines.
[[nodiscard]] std::string to_text(const TrainPrediction& prediction);
void add_to(nlohmann::ordered_json& json, const TrainPrediction& prediction);

}  // namespace echelon
