#include "predict/simulate.h"

#include "predict/device_map.h"
#include "predict/device_time.h"
#include "predict/network_time.h"
#include "spec/model_spec.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

/// Seconds of an action of a rank, by what it computes and by what it sends.
struct ActionTime {
  double compute = 0;
  std::map<std::string, double> communication = {};
  [[nodiscard]] double total() const {
    return std::accumulate(communication.begin(), communication.end(), compute, [](double sum, const auto& each) { return sum + each.second; });
  }
};

/// A rank that stands for all that differ from it in other axes than pp.
struct Representative {
  int rank = 0;
  RankBlueprint blueprint;
};

class StepSimulator {
 public:
  StepSimulator(const Blueprint& blueprint, const MachineSpec& machine, const SimulationOptions& options)
      : blueprint_(blueprint), options_(options), devices_(blueprint.mesh(), machine) {
    Coordinates coordinates{};
    for (int stage = 0; stage < blueprint.mesh().degree(Axis::pp); ++stage) {
      coordinates[static_cast<std::size_t>(Axis::pp)] = stage;
      const int rank = blueprint.mesh().rank_of(coordinates);
      ranks_.push_back({rank, blueprint.rank(rank)});
    }
  }

  Simulation run() {
    const auto& programs = blueprint_.programs(ProgramKind::training);
    Simulation result;
    result.timeline = play(programs, [this](int pipeline_rank, const Action& action) { return time_of(pipeline_rank, action).total(); });
    for (const Event& event : result.timeline.events) result.step_seconds = std::max(result.step_seconds, event.end);
    for (const Representative& each : ranks_) result.memory.push_back(memory_of(each));
    count(result);
    return result;
  }

 private:
  ActionTime time_of(int pipeline_rank, const Action& action) {
    const Representative& each = ranks_[static_cast<std::size_t>(pipeline_rank)];
    const CallTrace& trace = each.blueprint.trace(ProgramKind::training).of(action);
    const auto known = times_.find(&trace);
    if (known != times_.end()) return known->second;
    const CallTrace does = rewritten(options_.profile, blueprint_.config(), action, trace);
    ActionTime time;
    for (const OpRecord& operation : does.ops) time.compute += operation_seconds(operation, devices_.kind_of(each.rank).device);
    const auto slow = options_.slow_ranks.find(each.rank);
    if (slow != options_.slow_ranks.end()) time.compute *= slow->second;
    for (const CommRecord& record : does.comms) time.communication[name_of(record.group)] += communication_seconds(record, each.rank, devices_);
    return times_.emplace(&trace, time).first->second;
  }

  PredictedMemory memory_of(const Representative& each) const {
    PredictedMemory memory;
    for (const MemoryCategory category : memory_categories())
      memory.category_bytes[category] = each.blueprint.memory(ProgramKind::training).peak_bytes(category);
    memory.arena_bytes = each.blueprint.arena_bytes();
    memory.device_bytes = devices_.kind_of(each.rank).device.memory_bytes;
    return memory;
  }

  /// Flops and bytes of all ranks, and the peak of their devices.
  void count(Simulation& result) {
    const RunConfig& config = blueprint_.config();
    const int copies = blueprint_.mesh().num_ranks() / blueprint_.mesh().degree(Axis::pp);
    result.model_flops =
        model_flops_per_token(config.model, config.training.seq_len) * static_cast<double>(config.training.global_batch_size * config.training.seq_len);
    for (const Representative& each : ranks_) {
      for (const Action& action : each.blueprint.program(ProgramKind::training)) {
        const CallTrace& trace = each.blueprint.trace(ProgramKind::training).of(action);
        for (const OpRecord& operation : trace.ops) result.hardware_flops += static_cast<double>(operation.flops) * copies;
        for (const CommRecord& record : trace.comms) result.sent_bytes[name_of(record.group)] += record.sent_bytes * copies;
      }
      result.peak_flops += rates_of(devices_.kind_of(each.rank).device, parse_dtype(config.training.dtype)).peak_flops * copies;
    }
  }

  const Blueprint& blueprint_;
  const SimulationOptions& options_;
  DeviceMap devices_;
  std::vector<Representative> ranks_;
  std::map<const CallTrace*, ActionTime> times_;
};

}  // namespace

bool Simulation::fits() const {
  return std::all_of(memory.begin(), memory.end(), [](const PredictedMemory& each) { return each.arena_bytes <= each.device_bytes; });
}

std::int64_t Simulation::peak_memory_bytes() const {
  std::int64_t peak = 0;
  for (const PredictedMemory& each : memory) peak = std::max(peak, each.arena_bytes);
  return peak;
}

Simulation simulate(const Blueprint& blueprint, const MachineSpec& machine, const SimulationOptions& options) {
  return StepSimulator(blueprint, machine, options).run();
}

}  // namespace echelon
