#include "plan/text/explanation.h"

#include "base/text/counted.h"
#include "base/units.h"
#include "plan/text/text.h"
#include "predict/machine/device_map.h"
#include "spec/lora/lora_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {

std::map<std::string, double> seconds_by_part(const Plan& plan) {
  const StepParts& parts = plan.outcome.parts;
  std::map<std::string, double> all = {{"compute", parts.compute_seconds},
                                       {"bubble (waiting for other stages)", parts.bubble_seconds},
                                       {"waiting for slower replicas", parts.waiting_seconds},
                                       {"waiting for the host", parts.host_seconds},
                                       {"optimizer and clipping", parts.optimizer_seconds},
                                       {"other", parts.other_seconds}};
  for (const auto& [group, seconds] : parts.exposed_communication_seconds)
    all["exposed communication over " + group] = seconds;
  std::erase_if(all, [](const auto& each) { return each.second <= 0; });
  return all;
}

double tokens_per_second(const Plan& plan) {
  const TrainingConfig& t = plan.config.training;
  return static_cast<double>(t.global_batch_size * t.seq_len) / plan.outcome.step_seconds;
}

double peak_gib(const Plan& plan) { return static_cast<double>(plan.outcome.peak_memory_bytes()) / gib; }

namespace {

using NamedSeconds = std::vector<std::pair<std::string, double>>;
NamedSeconds largest_first(const std::map<std::string, double>& parts) {
  NamedSeconds sorted(parts.begin(), parts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  return sorted;
}

const PredictedMemory& highest_memory(const Plan& plan) {
  return *std::max_element(plan.outcome.memory.begin(), plan.outcome.memory.end(),
                           [](const auto& a, const auto& b) { return a.arena_bytes < b.arena_bytes; });
}

std::string rule(std::string_view advice, bool holds, const std::string& here) {
  return fmt::format("{} {}: {}", holds ? "[as advised]" : "[against it]", advice, here);
}

/// Parameters, gradients and optimizer states of the whole model on one device.
double state_bytes(const RunConfig& config) {
  const DType dtype = config.training.dtype, wide = accumulate_dtype(dtype);
  const DType grad = config.training.grad_dtype.value_or(wide);
  const DType moments = config.optimizer.moments_dtype.value_or(wide);
  const DType master = config.optimizer.store_param_remainders ? DType::int16 : wide;
  const auto of_trained = size_of(dtype) + size_of(grad) + 2 * size_of(moments) + (dtype == wide ? 0 : size_of(master));
  if (!config.lora.exists())
    return static_cast<double>(of_trained) * static_cast<double>(config.model.num_parameters());
  std::int64_t of_adapters = 0;
  for (const NamedShape& each : saved_parameters(config.model, config.lora)) of_adapters += each.sizes.num_elements();
  return static_cast<double>(of_trained * of_adapters + size_of(dtype) * config.model.num_parameters());
}

}  // namespace

std::vector<std::string> time_parts(const Plan& plan) {
  std::vector<std::string> lines;
  for (const auto& [name, seconds] : largest_first(seconds_by_part(plan)))
    lines.push_back(fmt::format("{:>9.4f} s {:>5.1f} %  {}", seconds, 100 * seconds / plan.outcome.step_seconds, name));
  return lines;
}

std::vector<std::string> differences(const Plan& best, const Plan& other) {
  std::map<std::string, double> delta = seconds_by_part(other);
  for (const auto& [name, seconds] : seconds_by_part(best)) delta[name] -= seconds;
  const double all = other.outcome.step_seconds - best.outcome.step_seconds;
  std::vector<std::string> lines = {
      fmt::format("{:>+9.4f} s {:>+5.1f} %  the step, of which", all, 100 * all / best.outcome.step_seconds)};
  for (const auto& [name, seconds] : largest_first(delta))
    if (std::abs(seconds) > 0.001 * best.outcome.step_seconds)
      lines.push_back(fmt::format("{:>+9.4f} s          {}", seconds, name));
  const auto bytes = static_cast<double>(other.outcome.peak_memory_bytes() - best.outcome.peak_memory_bytes());
  lines.push_back(fmt::format("{:>+9.2f} GiB        memory of the rank that uses most", bytes / gib));
  return lines;
}

std::vector<std::string> order_reasons(const Plan& best, const Plan& in_default_order, const MachineSpec& machine) {
  const auto held = [&](const Plan& plan) {
    const DeviceMap devices(plan.config.mesh_shape(), machine);
    std::string text;
    for (const Axis axis : plan.choice.order.axes())
      if (const int members = devices.placement_of({.axes = AxisSet{axis}}, 0).ranks_per_node; members > 1)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(axis), members);
    return text.empty() ? "no two of an axis" : text;
  };
  std::vector<std::string> lines = {
      fmt::format("a node holds of each axis: {}; in the default order {} it would hold: {}", held(best),
                  name_of(in_default_order.choice.order), held(in_default_order))};
  for (std::string& line : differences(best, in_default_order)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> context_reasons(const PlanResult& result) {
  const Plan& best = result.plans.front();
  if (!result.without_context) {
    if (best.choice.shape.cp == 1) return {};
    return {"it is fixed, or nothing without it fits"};
  }
  std::vector<std::string> lines = {fmt::format(
      "the best layout without it is {} with {} of {}, recomputation {}: {:.2f} times as long",
      degrees_text(result.without_context->choice.shape),
      counted(result.without_context->choice.shape.num_microbatches, "microbatch"),
      result.without_context->choice.shape.micro_batch_size, recompute_text(result.without_context->choice.recompute),
      result.without_context->outcome.step_seconds / best.outcome.step_seconds)};
  for (std::string& line : differences(best, *result.without_context)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> balancer_reasons(const PlanResult& result) {
  const RunConfig& config = result.plans.front().config;
  const ParallelConfig& p = config.parallelism;
  if (p.context_parallel_degree == 1) return {};
  const std::string_view chosen = name_of(p.context_parallel_load_balancer);
  if (result.balanced.empty()) {
    if (key_exchange(p).head_ranks == p.context_parallel_degree)
      return {fmt::format("{}: each rank attends to all tokens, so no balancer changes the step", chosen)};
    const bool is_open = config.data.reset_attention_mask;
    return {fmt::format("{}: timed for whole sequences{}", chosen,
                        is_open ? "; --documents says what documents leave of each balancer's step"
                                : ", of which headtail gives every rank as many pairs (query, key)")};
  }
  std::vector<std::string> lines;
  for (const BalancedStep& step : result.balanced)
    lines.push_back(fmt::format("{}: {:.4f} s a step{}{}", name_of(step.balancer), step.seconds,
                                step.fits ? "" : ", does not fit",
                                step.balancer == p.context_parallel_load_balancer ? ", chosen" : ""));
  return lines;
}

std::vector<std::string> memory_parts(const Plan& plan) {
  const PredictedMemory& memory = highest_memory(plan);
  std::vector<std::string> lines;
  for (const auto& [category, bytes] : memory.bytes_at_peak)
    if (static_cast<double>(bytes) >= 0.001 * static_cast<double>(memory.arena_bytes))
      lines.push_back(fmt::format("{:>9.2f} GiB  {}", static_cast<double>(bytes) / gib, name_of(category)));
  const auto in_gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / gib; };
  std::string together = fmt::format("{:>9.2f} GiB  together, at the peak, of {:.2f}", in_gib(memory.arena_bytes),
                                     in_gib(memory.device_bytes));
  if (memory.reserved_bytes > 0)
    together += fmt::format(" ({:.2f} less {:.2f} for the driver, libraries and NCCL)",
                            in_gib(memory.device_bytes + memory.reserved_bytes), in_gib(memory.reserved_bytes));
  lines.push_back(std::move(together));
  return lines;
}

std::vector<std::string> misses(const Plan& plan) {
  const PredictedMemory& memory = highest_memory(plan);
  std::vector<std::string> lines = {fmt::format("it needs {:.2f} GiB and misses {:.2f} GiB",
                                                static_cast<double>(memory.arena_bytes) / gib,
                                                static_cast<double>(memory.arena_bytes - memory.device_bytes) / gib)};
  for (std::string& line : memory_parts(plan)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> rules_of_thumb(const PlanResult& result, const PlanRequest& request) {
  const Plan& best = result.plans.front();
  const PlanShape& shape = best.choice.shape;
  const NodeSpec& node = request.machine.nodes.front();
  const double states = state_bytes(request.base), device = static_cast<double>(node.device.memory_bytes),
               whole_node = device * static_cast<double>(node.num_devices);
  const std::string sizes = fmt::format("states are {:.1f} GiB, a device has {:.1f}, a node {:.1f}", states / gib,
                                        device / gib, whole_node / gib);
  const std::string degrees = degrees_text(shape);
  std::vector<std::string> lines;
  const bool is_split = shape.tp > 1 || shape.pp > 1;
  const bool cuts_states = is_split || num_shards(shape, best.choice.data) > 1;
  if (states < device) {
    lines.push_back(rule("what fits on one device is trained with data parallelism alone", !is_split,
                         fmt::format("{}; best is {}", sizes, degrees)));
  } else if (states < whole_node) {
    lines.push_back(
        rule("states that exceed a device but fit in a node are sharded by ZeRO or tensor parallelism",
             cuts_states && shape.pp == 1,
             fmt::format("{}; best is {}, {}", sizes, degrees, counted(num_shards(shape, best.choice.data), "shard"))));
  } else {
    lines.push_back(rule("states beyond a node: tensor parallelism inside nodes and pipelines between them",
                         shape.tp > 1 && shape.pp > 1, fmt::format("{}; best is {}", sizes, degrees)));
  }
  if (shape.tp > 1) {
    lines.push_back(rule("tensor parallelism stays inside a node", shape.tp <= node.num_devices,
                         fmt::format("tp {} of {}", shape.tp, counted(node.num_devices, "device"))));
    lines.push_back(rule("sequence parallelism goes along with it", shape.sequence_parallel,
                         shape.sequence_parallel ? "it does" : "it does not"));
  }
  if (shape.pp > 1)
    lines.push_back(rule("four microbatches for each pipeline stage keep the bubble small",
                         shape.num_microbatches >= 4 * shape.pp,
                         fmt::format("{} on {} ranks, {:.1f} % bubble", counted(shape.num_microbatches, "microbatch"),
                                     shape.pp, 100 * best.outcome.parts.bubble_seconds / best.outcome.step_seconds)));
  const bool keeps_all = best.choice.recompute.operations.empty();
  lines.push_back(rule("recompute only what memory demands",
                       keeps_all || static_cast<double>(best.outcome.peak_memory_bytes()) > 0.8 * device,
                       fmt::format("{}, {:.1f} of {:.1f} GiB are used", keeps_all ? "nothing is" : "some is",
                                   static_cast<double>(best.outcome.peak_memory_bytes()) / gib, device / gib)));
  return lines;
}

}  // namespace echelon
