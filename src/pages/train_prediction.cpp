#include "pages/train_prediction.h"

#include "backend/backend.h"
#include "base/median.h"
#include "engine/run_device.h"
#include "measure/measure_machine.h"
#include "predict/host/host_step.h"
#include "predict/simulation/simulate.h"
#include "spec/machine/host_spec.h"
#include "train/data/attention_shares.h"
#include "train/data/open_data.h"
#include "train/run_placement.h"
#include "train/start/run_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

std::optional<double> median_of(std::vector<double> seconds) {
  return seconds.empty() ? std::nullopt : std::optional(median(std::move(seconds)));
}

/// Without the first one, which has cold caches and allocates scratch, and those with a snapshot, if there are others.
std::optional<double> measured_step(const std::vector<StepReport>& steps) {
  std::vector<double> all, plain;
  for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
    all.push_back(steps[i].step_seconds);
    if (!steps[i].takes_snapshot) plain.push_back(steps[i].step_seconds);
  }
  return median_of(plain.empty() ? all : plain);
}

std::optional<double> measured_snapshot_step(const std::vector<StepReport>& steps) {
  std::vector<double> seconds;
  for (const StepReport& each : steps)
    if (each.takes_snapshot) seconds.push_back(each.step_seconds);
  return median_of(std::move(seconds));
}

/// The operations of the ranks, each size once. Ranks of one stage run the same operations, except for padding.
std::vector<OperationSize> operations_of(const Blueprint& blueprint) {
  const ProgramKind kind = blueprint.config().checkpoint.saves_asynchronously() ? ProgramKind::training_with_snapshot
                                                                                : ProgramKind::training;
  std::vector<OperationSize> sizes;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks())
    for (const Action& action : rank.program(kind))
      for (const OpRecord& each : rank.trace(kind).of(action).operations()) {
        const OperationSize size = {each.kind, each.dtype, each.m, each.n, each.k, each.is_weight_gradient};
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

/// Bytes, seconds of `disk`, and if the step is predicted all that `predict` knows.
template <class F>
void set_save(TrainPrediction& prediction, const Blueprint& blueprint, const DiskSpec& disk, F&& predict) {
  if (!blueprint.config().checkpoint.enable) return;
  prediction.save = predicted_save_on_disk(disk, blueprint);
  try {
    if (prediction.predicted_step_seconds) prediction.save = predict();
  } catch (const Error&) {  // as of the step, whose reason is told
  }
}

/// Of the first batches of the run's data; empty where attention ends at no document, or the data cannot be read, which
/// the run will say.
HostLoad load_of(const RunConfig& config) {
  constexpr std::int64_t most_batches = 4;
  if (!config.data.reset_attention_mask) return {};
  try {
    const DatasetBatches batches = open_documents(config);
    return {.attention_shares = attention_shares(config, batches, std::min(config.training.steps, most_batches))};
  } catch (const Error&) {
    return {};
  }
}

void predict_processes(TrainPrediction& prediction, const Blueprint& blueprint, const RankPlacement& placement,
                       const std::optional<HostSpec>& host) {
  const HostLoad load = load_of(blueprint.config());
  if (!host || host->operations.empty()) {
    prediction.source = "not predicted: metrics.machine does not name a machine file with measured operations";
  } else if (placement.num_ranks > placement.num_ranks_on_host) {
    prediction.source = "not predicted: the processes are on several hosts, and a machine file is of one";
  } else {
    set_step(prediction, [&] { return host_step_of_processes(blueprint, *host, load); });
  }
  const bool is_of_one_host = placement.num_ranks == placement.num_ranks_on_host;
  set_save(prediction, blueprint, host && is_of_one_host ? host->disk : DiskSpec(),
           [&] { return predicted_save_on(*host, HostRanks::processes, blueprint, load); });
}

}  // namespace

TrainPrediction predict_on_gpus(const Blueprint& blueprint) {
  TrainPrediction prediction;
  prediction.predicted_memory_bytes = blueprint.rank(0).arena_bytes();
  const std::string& name = blueprint.config().metrics.machine;
  if (name.empty()) {
    prediction.source = "not predicted: metrics.machine is empty (example: h100)";
    set_save(prediction, blueprint, {}, [] { return PredictedSave(); });
    return prediction;
  }
  const SoftwareProfile profile = software_profile("echelon");
  const MachineSpec machine = calibrated(profile, read_machine(name));
  prediction.source = fmt::format("{}, at {}", name, rates_text(profile, machine));
  prediction.predicted_step_seconds = simulate(blueprint, machine, {.profile = profile}).step_seconds;
  set_save(prediction, blueprint, {}, [&] { return predicted_save(blueprint, machine); });
  return prediction;
}

TrainPrediction predict_training(const RunConfig& config) {
  const Blueprint blueprint(config);
  const std::unique_ptr<Backend> backend = open_backend(config.training.device);
  if (backend->kind() == DeviceKind::cuda) return predict_on_gpus(blueprint);
  const RankPlacement placement = placement_of(config);
  require_host_memory(blueprint, placement, *backend);  // operations of a model that does not fit are not measured
  TrainPrediction prediction;
  prediction.predicted_memory_bytes = blueprint.rank(0).arena_bytes();
  std::optional<HostSpec> host;
  if (!config.metrics.machine.empty()) host = read_host(config.metrics.machine);
  prediction.source = config.metrics.machine;
  if (placement.transport == Transport::mpi) {
    predict_processes(prediction, blueprint, placement, host);
    return prediction;
  }
  if (!host || host->operations.empty()) {
    const std::optional<HostSpec> rates =
        std::exchange(host, measure_for(operations_of(blueprint), products_of_run(config)));
    if (rates) {
      host->device = rates->device;
      host->core = rates->core;
      host->disk = rates->disk;
    }
    prediction.source = "its operations, measured once before the run";
  }
  const HostLoad load = load_of(config);
  set_step(prediction, [&] { return host_step(blueprint, *host, load); });
  set_save(prediction, blueprint, host->disk,
           [&] { return predicted_save_on(*host, HostRanks::threads, blueprint, load); });
  return prediction;
}

void set_measured(TrainPrediction& prediction, const std::vector<StepReport>& steps,
                  const std::vector<double>& save_seconds) {
  if (!steps.empty()) prediction.measured_memory_bytes = steps.back().memory_peak_bytes;
  prediction.measured_step_seconds = measured_step(steps);
  prediction.measured_snapshot_step_seconds = measured_snapshot_step(steps);
  prediction.measured_save_seconds = median_of(save_seconds);
}

namespace {

/// "step: predicted 0.0110 s, measured 0.0100 s (+10.0 %; from FILE)". Without a prediction: the reason.
std::string comparison(std::string_view what, const std::optional<double>& predicted,
                       const std::optional<double>& measured, const std::string& source) {
  const auto seconds = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f} s", *value) : "N/A";
  };
  std::string text = fmt::format("{}: predicted {}, measured {}", what, seconds(predicted), seconds(measured));
  if (predicted && measured) text += fmt::format(" ({:+.1f} %; from {})", 100 * (*predicted / *measured - 1), source);
  if (!predicted) text += fmt::format(" ({})", source);
  return text + "\n";
}

}  // namespace

std::string to_text(const TrainPrediction& p) {
  std::string text = fmt::format("memory of rank 0: predicted {} bytes, measured {} bytes\n", p.predicted_memory_bytes,
                                 p.measured_memory_bytes);
  text += comparison("step", p.predicted_step_seconds, p.measured_step_seconds, p.source);
  if (p.measured_snapshot_step_seconds)
    text += comparison("step with a snapshot", p.seconds_of_step(true), p.measured_snapshot_step_seconds, p.source);
  if (p.save && p.save->save_seconds && p.measured_save_seconds)
    text += comparison("checkpoint", p.save->save_seconds, p.measured_save_seconds, "its disk there");
  return text;
}

void add_to(nlohmann::ordered_json& json, const TrainPrediction& p) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  json["predicted_memory_bytes"] = p.predicted_memory_bytes;
  json["measured_memory_bytes"] = nullptr;
  if (p.measured_memory_bytes > 0) json["measured_memory_bytes"] = p.measured_memory_bytes;
  json["predicted_step_seconds"] = number(p.predicted_step_seconds);
  json["measured_step_seconds"] = number(p.measured_step_seconds);
  if (p.measured_snapshot_step_seconds) json["measured_snapshot_step_seconds"] = *p.measured_snapshot_step_seconds;
  if (!p.save) return;
  json["checkpoint"] = to_json(*p.save);
  json["checkpoint"]["measured_save_seconds"] = number(p.measured_save_seconds);
}

}  // namespace echelon
