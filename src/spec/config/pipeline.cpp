#include "spec/config/pipeline.h"

#include "base/error.h"
#include "base/text_file.h"
#include "schedule/draw/torch_csv.h"

namespace echelon {
namespace {

ScheduleKeys keys_of(const RunConfig& config) {
  return {.schedule = "parallelism.pipeline_parallel_schedule",
          .num_virtual = "parallelism.virtual_stages",
          .num_microbatches = "training.global_batch_size",
          .memory_limit = "parallelism.pipeline_memory_limit",
          .per_microbatch = config.data_parallel_degree() * config.training.micro_batch_size};
}

ScheduleRequest request_of(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  ScheduleRequest request{.num_ranks = static_cast<int>(p.pipeline_parallel_degree),
                          .num_microbatches = static_cast<int>(config.num_microbatches()),
                          .num_virtual = static_cast<int>(p.virtual_stages)};
  const int named_stages = num_stages_of(p.pipeline_parallel_layout);
  if (request.num_virtual == 0 && named_stages % request.num_ranks == 0)
    request.num_virtual = named_stages / request.num_ranks;
  request.times = {p.pipeline_forward_ms, p.pipeline_backward_input_ms, p.pipeline_backward_weight_ms,
                   p.pipeline_p2p_ms};
  request.memory.limit = p.pipeline_memory_limit;
  return request;
}

Schedule schedule_from_file(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::string& path = p.pipeline_parallel_schedule_csv;
  const std::optional<std::string> text = read_text_file(path);
  require(text.has_value(), "parallelism.pipeline_parallel_schedule_csv = '{}' cannot be read; check the path", path);
  Schedule schedule = read_torch_csv(*text, path);
  const auto num_ranks = static_cast<std::int64_t>(schedule.ranks.size());
  require(num_ranks == p.pipeline_parallel_degree,
          "{} has {} rows, one for each rank, but parallelism.pipeline_parallel_degree = {} (use {})", path, num_ranks,
          p.pipeline_parallel_degree, num_ranks);
  require(p.virtual_stages == 0 || p.virtual_stages * num_ranks == schedule.num_stages,
          "{} has {} stages on {} ranks, but parallelism.virtual_stages = {} (use 0)", path, schedule.num_stages,
          num_ranks, p.virtual_stages);
  require(schedule.num_microbatches == config.num_microbatches(),
          "{} has {} microbatches, but training.global_batch_size = {} makes {} of each rank (use {})", path,
          schedule.num_microbatches, config.training.global_batch_size, config.num_microbatches(),
          schedule.num_microbatches * config.data_parallel_degree() * config.training.micro_batch_size);
  return schedule;
}

}  // namespace

int num_pipeline_stages(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  if (!p.pipeline_parallel_schedule_csv.empty()) return schedule_from_file(config).num_stages;
  const ScheduleRequest request = checked(p.pipeline_parallel_schedule, request_of(config), keys_of(config));
  return request.num_ranks * request.num_virtual;
}

Schedule pipeline_schedule(const RunConfig& config) {
  if (config.parallelism.pipeline_parallel_schedule_csv.empty())
    return make_schedule(config.parallelism.pipeline_parallel_schedule, request_of(config), keys_of(config));
  Schedule schedule = schedule_from_file(config);
  check_memory(schedule, request_of(config).memory, keys_of(config).memory_limit);
  return schedule;
}

}  // namespace echelon
