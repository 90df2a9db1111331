#include "predict/simulation/host_simulation.h"

#include "predict/host/host_step.h"
#include "predict/step/context_rank.h"
#include "spec/config/model_flops.h"

namespace echelon {

Simulation simulate_on_host(const Blueprint& blueprint, const HostSpec& host, const SimulationOptions& options) {
  const HostLoad load = {.slow_ranks = options.slow_ranks, .attention_shares = options.attention_shares};
  const HostStep step = host_step(blueprint, host, load, options.kind);
  const RunConfig& config = blueprint.config();
  const int num_ranks = blueprint.mesh().num_ranks(), num_stages = blueprint.mesh().degree(Axis::pp);
  Simulation result;
  result.step_seconds = step.seconds;
  result.timeline = step.timeline;
  result.model_flops = model_flops_of_step(config, options.profile.pairs_share);
  result.peak_flops = host.device.peak_flops(name_of(config.training.dtype)).value_or(0);
  const int num_alike = num_ranks / num_stages;
  const ContextRanks context_ranks(config, options.profile.pairs_share);
  for (const RankBlueprint& like : blueprint.pipeline_ranks()) {
    result.memory.push_back(predicted_memory(like, host.memory_bytes / num_ranks));
    SimulatedRank& simulated = result.ranks.emplace_back(SimulatedRank{
        .rank = like.rank(), .pipeline_rank = static_cast<int>(result.ranks.size()), .num_ranks = num_alike});
    simulated.lane_names = {"compute", "transfers", "collectives"};  // in the order of Lane
    for (const Action& action : like.program(options.kind)) {
      simulated.lanes.push_back(static_cast<int>(lane_of(action.kind)));
      const CallTrace& trace = like.trace(options.kind).of(action);
      for (const OpRecord& operation : trace.operations())
        result.hardware_flops += context_ranks.mean_flops(operation, 0) * num_alike;
      for (const CommRecord& record : trace.communications())
        simulated.sent_bytes[name_of(record.group)] += record.sent_bytes;
    }
    for (const auto& [group, bytes] : simulated.sent_bytes) result.sent_bytes[group] += bytes * num_alike;
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    StepParts share = step.parts[static_cast<std::size_t>(rank)];  // those of a stage take turns: their mean
    result.ranks[static_cast<std::size_t>(blueprint.mesh().coordinate(rank, Axis::pp))].parts +=
        (share *= static_cast<double>(num_stages) / num_ranks);
  }
  for (const StepParts& parts : step.parts) result.parts += parts;
  result.parts *= 1.0 / num_ranks;
  return result;
}

}  // namespace echelon
