#include "train/start/run_description.h"

#include "base/text/counted.h"
#include "blueprint/padding_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace echelon {
namespace {

std::string describe_pipeline(const Schedule& schedule, const ParallelConfig& p) {
  const auto num_ranks = static_cast<int>(schedule.ranks.size());
  if (num_ranks == 1 && schedule.num_stages == 1) return "1";
  const std::string name = p.pipeline_parallel_schedule_csv.empty() ? std::string(name_of(p.pipeline_parallel_schedule))
                                                                    : p.pipeline_parallel_schedule_csv;
  return fmt::format("{} ({}{})", num_ranks, name,
                     schedule.num_stages > num_ranks ? fmt::format(", {} stages", schedule.num_stages) : "");
}

std::string describe_adapters(const RunConfig& config) {
  if (!config.lora.exists()) return "";
  const auto millions = [](const std::vector<NamedShape>& parameters) {
    double sum = 0;
    for (const NamedShape& each : parameters) sum += static_cast<double>(each.sizes.num_elements());
    return sum / 1e6;
  };
  const std::vector<NamedShape> whole = whole_parameters(config.model, config.lora);
  return fmt::format(", {:.3f} M in adapters of rank {}{} alone are trained",
                     millions(adapter_parameters(config.model, config.lora)), config.lora.rank,
                     whole.empty() ? "" : fmt::format(" and {:.3f} M in modules to save", millions(whole)));
}

}  // namespace

std::string description(const Blueprint& blueprint, const RankPlacement& placement) {
  const RunConfig& config = blueprint.config();
  const ParallelConfig& p = config.parallelism;
  const std::string kind = placement.transport == Transport::thread ? "thread" : "process";
  return fmt::format(
      "model: {} of {:.2f} M parameters{}{}; mesh: replicate {} x pipeline {} x shard {} x {}tensor {} = {} as {}; {} "
      "of {} x {} tokens per rank and step",
      name_of(config.model.family), static_cast<double>(config.model.num_parameters()) / 1e6,
      config.model.has_experts()
          ? fmt::format(", {:.2f} M active", static_cast<double>(config.model.num_active_parameters()) / 1e6)
          : "",
      describe_adapters(config), p.data_parallel_replicate_degree, describe_pipeline(blueprint.schedule(), p),
      p.data_parallel_shard_degree,
      p.context_parallel_degree > 1
          ? fmt::format("context {} ({}, {}) x ", p.context_parallel_degree, name_of(p.context_parallel_method),
                        name_of(p.context_parallel_load_balancer))
          : "",
      p.tensor_parallel_degree, counted(config.mesh_shape().num_ranks(), "rank"),
      config.mesh_shape().num_ranks() == 1 ? "a " + kind : plural(config.mesh_shape().num_ranks(), kind),
      counted(config.num_microbatches(), "microbatch"), config.training.micro_batch_size, config.training.seq_len);
}

std::string description(const DatasetBatches& training, const RunConfig& config) {
  const std::int64_t T = config.training.seq_len, in_step = config.training.global_batch_size;
  const std::int64_t sequences = training.windows_per_epoch(T);
  const double epochs =
      static_cast<double>(config.training.steps) * static_cast<double>(in_step) / static_cast<double>(sequences);
  return fmt::format("data: {} in {} of {}; {} x {} = {:.{}f} epochs",
                     counted(training.dataset().num_tokens(), "token"), counted(sequences, "sequence"), T,
                     counted(config.training.steps, "step"), counted(in_step, "sequence"), epochs,
                     epochs < 0.1 ? 4 : 2);
}

std::string short_data_warning(const DatasetBatches& training, const RunConfig& config) {
  const std::int64_t T = config.training.seq_len, tokens = training.dataset().num_tokens();
  if (training.windows_per_epoch(T) > 1 || training.num_tokens(0, T) == T) return "";
  return fmt::format(
      "data.path = '{}' has {}, less than one sequence of training.seq_len = {}: every sequence is the "
      "same text with padding (use more text, or training.seq_len = {})",
      config.data.path, counted(tokens, "token"), T, std::max<std::int64_t>(1, tokens - 1));
}

std::string memory_description(const RankBlueprint& rank) {
  constexpr double mebibyte = 1024.0 * 1024.0;
  std::string parts;
  const MemoryPlan memory = most_padded_memory(rank, ProgramKind::training);
  for (const MemoryCategory category : memory_categories()) {
    const double size = static_cast<double>(memory.peak_bytes(category)) / mebibyte;
    if (size >= 0.005) parts += fmt::format("{}{:.2f} MiB of {}", parts.empty() ? "" : ", ", size, name_of(category));
  }
  return fmt::format("memory of rank {}: {:.2f} MiB, at most {}", rank.rank(),
                     static_cast<double>(rank.arena_bytes()) / mebibyte, parts);
}

}  // namespace echelon
