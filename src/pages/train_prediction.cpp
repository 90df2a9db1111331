#include "pages/train_prediction.h"

#include "backend/backend.h"
#include "base/median.h"
#include "measure/measure_machine.h"
#include "predict/host/host_step.h"
#include "predict/simulation/simulate.h"
#include "spec/machine/host_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

std::optional<double> measured_step(const std::vector<StepReport>& steps) {
  std::vector<double> seconds;
  for (const StepReport& each : steps) seconds.push_back(each.step_seconds);
  if (seconds.size() > 1) seconds.erase(seconds.begin());  // the first one has cold caches and allocates scratch
  return seconds.empty() ? std::nullopt : std::optional(median(seconds));
}

/// The operations of the ranks, each size once. Ranks of one stage run the same operations, except for padding.
std::vector<OperationSize> operations_of(const Blueprint& blueprint) {
  std::vector<OperationSize> sizes;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks())
    for (const Action& action : rank.program(ProgramKind::training))
      for (const OpRecord& each : rank.trace(ProgramKind::training).of(action).operations()) {
        const OperationSize size = {each.kind, each.dtype, each.m, each.n, each.k};
        if (each.m > 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
      }
  return sizes;
}

/// `predict` returns the step or the reason why it has none.
template <class F>
void set_step(TrainPrediction& prediction, F&& predict) {
  try {
    HostStep step = predict();
    prediction.predicted_step_seconds = step.seconds;
    prediction.predicted_timeline = std::move(step.timeline);
  } catch (const Error& error) {
    prediction.source = fmt::format("not predicted: {}", error.what());
  }
}

void predict_processes(TrainPrediction& prediction, const Blueprint& blueprint, const RankPlacement& placement,
                       const std::optional<HostSpec>& host) {
  if (!host || host->operations.empty()) {
    prediction.source = "not predicted: metrics.machine does not name a machine file with measured operations";
  } else if (placement.num_ranks > placement.num_ranks_on_host) {
    prediction.source = "not predicted: the processes are on several hosts, and a machine file is of one";
  } else {
    set_step(prediction, [&] { return host_step_of_processes(blueprint, *host); });
  }
}

void predict_gpus(TrainPrediction& prediction, const Blueprint& blueprint) {
  const std::string& machine = blueprint.config().metrics.machine;
  prediction.source = machine.empty() ? "not predicted: metrics.machine is empty (example: h100)" : machine;
  if (!machine.empty()) prediction.predicted_step_seconds = simulate(blueprint, read_machine(machine)).step_seconds;
}

}  // namespace

TrainPrediction predict_training(const RunConfig& config) {
  const Blueprint blueprint(config);
  TrainPrediction prediction;
  prediction.predicted_memory_bytes = blueprint.rank(0).arena_bytes();
  const RankPlacement placement = placement_of(config);
  if (open_backend(config.training.device)->kind() == DeviceKind::cuda) {
    predict_gpus(prediction, blueprint);
    return prediction;
  }
  std::optional<HostSpec> host;
  if (!config.metrics.machine.empty()) host = read_host(config.metrics.machine);
  prediction.source = config.metrics.machine;
  if (placement.transport == Transport::mpi) {
    predict_processes(prediction, blueprint, placement, host);
    return prediction;
  }
  if (!host || host->operations.empty()) {
    host = measure_for(operations_of(blueprint));
    prediction.source = "its operations, measured once before the run";
  }
  set_step(prediction, [&] { return host_step(blueprint, *host); });
  return prediction;
}

void set_measured(TrainPrediction& prediction, const std::vector<StepReport>& steps) {
  if (!steps.empty()) prediction.measured_memory_bytes = steps.back().memory_peak_bytes;
  prediction.measured_step_seconds = measured_step(steps);
}

std::string to_text(const TrainPrediction& p) {
  const auto seconds = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f} s", *value) : "N/A";
  };
  std::string text = fmt::format("memory of rank 0: predicted {} bytes, measured {} bytes\n", p.predicted_memory_bytes,
                                 p.measured_memory_bytes);
  text += fmt::format("step: predicted {}, measured {}", seconds(p.predicted_step_seconds),
                      seconds(p.measured_step_seconds));
  if (p.predicted_step_seconds && p.measured_step_seconds)
    text += fmt::format(" ({:+.1f} %; from {})", 100 * (*p.predicted_step_seconds / *p.measured_step_seconds - 1),
                        p.source);
  if (!p.predicted_step_seconds) text += fmt::format(" ({})", p.source);
  return text + "\n";
}

void add_to(nlohmann::ordered_json& json, const TrainPrediction& p) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  json["predicted_memory_bytes"] = p.predicted_memory_bytes;
  json["measured_memory_bytes"] = p.measured_memory_bytes;
  json["predicted_step_seconds"] = number(p.predicted_step_seconds);
  json["measured_step_seconds"] = number(p.measured_step_seconds);
}

}  // namespace echelon
