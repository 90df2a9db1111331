#include "predict/simulation/simulate.h"

#include "base/error.h"
#include "blueprint/padding_rows.h"
#include "predict/machine/device_map.h"
#include "predict/machine/device_memory.h"
#include "predict/machine/device_time.h"
#include "predict/simulation/host_simulation.h"
#include "predict/step/step_work.h"
#include "spec/config/model_flops.h"

#include <algorithm>
#include <optional>

namespace echelon {
namespace {

void check_slow_ranks(const std::map<int, double>& slow_ranks, int num_ranks) {
  for (const auto& [rank, factor] : slow_ranks) {
    require(rank >= 0 && rank < num_ranks, "--slow rank={}:{} is not a rank: the last one is {} (use {})", rank, factor,
            num_ranks - 1, std::clamp(rank, 0, num_ranks - 1));
    constexpr double slowest = 1e6;
    require(factor > 0 && factor <= slowest, "--slow rank={}:{} is not a factor of a rank's time (use {})", rank,
            factor, factor > slowest ? slowest : 1);
  }
}

/// What all ranks together compute and could compute, and the smallest device of each stage.
void count(Simulation& result, const StepWorks& works, const DeviceMap& devices, const RunConfig& config,
           double pairs_share) {
  result.model_flops = model_flops_of_step(config, pairs_share);
  const Communicators communicators = communicators_of(devices.mesh(), partial_groups(config));
  for (int simulated = 0; simulated < works.num_ranks(); ++simulated) {
    const int num_alike = works.num_alike(simulated);
    for (const ActionTime* time : works.times(simulated).times) result.hardware_flops += time->flops * num_alike;
    const DeviceSpec& device = devices.kind_of(works.mesh_rank(simulated)).device;
    result.peak_flops += rates_of(device, config.training.dtype).peak_flops * num_alike;
    PredictedMemory& memory = result.memory[static_cast<std::size_t>(works.pipeline_rank(simulated))];
    const std::int64_t limit = arena_limit_bytes(device, communicators);
    if (limit >= memory.device_bytes) continue;
    memory.device_bytes = limit;
    memory.reserved_bytes = device.memory_bytes - limit;
  }
}

SimulatedRank described(const StepWorks& works, int simulated) {
  SimulatedRank rank{.rank = works.mesh_rank(simulated),
                     .pipeline_rank = works.pipeline_rank(simulated),
                     .num_ranks = works.num_alike(simulated)};
  for (const ActionTime* time : works.times(simulated).times)
    for (const auto& [group, bytes] : time->sent_bytes) rank.sent_bytes[group] += bytes;
  for (const Work& work : works.work().ranks[static_cast<std::size_t>(simulated)].works)
    rank.lanes.push_back(work.lane);
  rank.lane_names = works.lane_names(simulated);
  for (std::size_t action = 0; action < rank.lanes.size(); ++action) {
    const ActionTime& time = *works.times(simulated).times[action];
    const bool computes = rank.lanes[action] == compute_lane;
    rank.layers_send_seconds.push_back(computes ? time.exposed_seconds() : 0);
    rank.alone_seconds.push_back(time.seconds);
    rank.layer_messages.push_back(computes ? time.messages : std::vector<MessageTime>());
  }
  return rank;
}

/// Of the layers of a pass. One that takes longer than alone stretches them.
void add_exchanges(std::vector<ExchangeEvent>& exchanges, const ActionTime& alone, const Event& pass) {
  if (alone.seconds <= 0) return;
  const double stretch = (pass.end - pass.start) / alone.seconds;
  for (const MessageTime& message : alone.messages)
    if (message.purpose != RowPurpose::other)
      add_exchange(exchanges, {pass.rank, pass.action_id, name_of(message.purpose),
                               pass.start + stretch * message.start, pass.start + stretch * message.end});
}

void add_ranks(Simulation& result, const StepWorks& works, const StepEvents& events) {
  const auto waits_since = waits_for_replicas_since(works.work(), events, static_cast<int>(works.blueprints().size()));
  int num_ranks = 0;
  for (int simulated = 0; simulated < works.num_ranks(); ++simulated) {
    const std::vector<ActionTimes>& times = events.ranks[static_cast<std::size_t>(simulated)];
    SimulatedRank rank = described(works, simulated);
    rank.parts = parts_of(works.times(simulated), times, waits_since[static_cast<std::size_t>(simulated)], events.end);
    StepParts of_all = rank.parts;
    result.parts += (of_all *= rank.num_ranks);
    num_ranks += rank.num_ranks;
    for (const auto& [group, bytes] : rank.sent_bytes) result.sent_bytes[group] += bytes * rank.num_ranks;
    result.ranks.push_back(std::move(rank));
    for (const Action& action : *works.work().ranks[static_cast<std::size_t>(simulated)].program) {
      const ActionTimes& at = times[static_cast<std::size_t>(action.id)];
      result.timeline.events.push_back({simulated, action.id, lane_of(action.kind), at.begin, at.end});
      if (is_compute(action.kind))
        add_exchanges(result.timeline.exchanges, *works.times(simulated).times[static_cast<std::size_t>(action.id)],
                      result.timeline.events.back());
    }
  }
  result.parts *= 1.0 / num_ranks;
}

/// What is rewritten of mixtures of experts.
void check_experts(const SoftwareProfile& profile, const RunConfig& config) {
  if (profile.is_echelon || !config.model.has_experts()) return;
  require(!profile.computes_in_fp8,
          "the software profile '{}' has no mixtures of experts in 8 bits (use it without +fp8)", profile.name);
  require(!profile.reruns_whole_blocks || config.training.recompute != whole_block,
          "the software profile '{}' recomputes no whole blocks with experts (use training.recompute = \"mlp\")",
          profile.name);
}

}  // namespace

PredictedMemory predicted_memory(const RankBlueprint& rank, std::int64_t device_bytes) {
  PredictedMemory memory;
  const MemoryPlan plan = most_padded_memory(rank, ProgramKind::training);
  for (const MemoryCategory category : memory_categories()) memory.category_bytes[category] = plan.peak_bytes(category);
  memory.bytes_at_peak = plan.bytes_at_peak();
  memory.arena_bytes = rank.arena_bytes();
  memory.device_bytes = device_bytes;
  return memory;
}

bool Simulation::fits() const {
  return std::all_of(memory.begin(), memory.end(),
                     [](const PredictedMemory& each) { return each.arena_bytes <= each.device_bytes; });
}

std::int64_t Simulation::peak_memory_bytes() const {
  std::int64_t peak = 0;
  for (const PredictedMemory& each : memory) peak = std::max(peak, each.arena_bytes);
  return peak;
}

const PredictedMemory& Simulation::least_room() const {
  require(!memory.empty(), "a simulation without stages has no memory");
  return *std::min_element(memory.begin(), memory.end(),
                           [](const PredictedMemory& a, const PredictedMemory& b) { return a.room() < b.room(); });
}

Simulation simulate(const Blueprint& blueprint, const MachineSpec& machine, const SimulationOptions& options) {
  check_slow_ranks(options.slow_ranks, blueprint.mesh().num_ranks());
  check_experts(options.profile, blueprint.config());
  if (machine.host) return simulate_on_host(blueprint, *machine.host, options);
  std::optional<MachineSpec> rounding;
  if (blueprint.config().training.float32_matmul_precision == MatmulPrecision::high)
    rounding = with_tensorfloat32(machine);
  const DeviceMap devices(blueprint.mesh(), rounding ? *rounding : machine);
  const StepWorks works(blueprint, options.profile, devices, options.slow_ranks, options.kind);
  const StepEvents events = play(works.work());
  Simulation result;
  result.step_seconds = events.end;
  result.num_events = events.num_events;
  for (const RankBlueprint& rank : works.blueprints()) result.memory.push_back(predicted_memory(rank));
  count(result, works, devices, blueprint.config(), options.profile.pairs_share);
  add_ranks(result, works, events);
  return result;
}

std::vector<double> step_seconds_on(std::span<const MachineSpec> machines, const Blueprint& blueprint,
                                    const SoftwareProfile& profile) {
  if (machines.empty()) return {};
  std::vector<MachineSpec> rated(machines.begin(), machines.end());
  if (blueprint.config().training.float32_matmul_precision == MatmulPrecision::high)
    for (MachineSpec& machine : rated) machine = with_tensorfloat32(machine);
  const DeviceMap devices(blueprint.mesh(), rated.front());
  const StepWorks first(blueprint, profile, devices, {});
  std::vector<double> seconds = {play(first.work()).end};
  for (const MachineSpec& machine : std::span(rated).subspan(1)) {
    const DeviceMap others(blueprint.mesh(), machine);
    seconds.push_back(play(StepWorks(first, profile, others).work()).end);
  }
  return seconds;
}

}  // namespace echelon
