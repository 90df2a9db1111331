#include "plan/space/no_layout.h"

#include "base/divisors.h"
#include "base/error.h"
#include "plan/space/choices.h"
#include "plan/space/closest_value.h"
#include "spec/config/config_value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace echelon {
namespace {

constexpr std::string_view fixed_shard_key = "parallelism.data_parallel_shard_degree",
                           dispatch_key = "parallelism.expert_dispatch",
                           expert_degree_key = "parallelism.expert_parallel_degree";

constexpr std::int64_t most_sequences_of_a_step = std::numeric_limits<int>::max();

/// The product of the fixed degrees. Throws Error if it does not divide the devices.
std::int64_t product_of_degrees(const PlanRequest& request) {
  const ParallelConfig& p = request.base.parallelism;
  const std::int64_t head_ranks = std::max<std::int64_t>(1, p.context_parallel_ulysses_degree);
  require(request.num_devices % head_ranks == 0,
          "parallelism.context_parallel_ulysses_degree = {} does not divide --gpus={} (use {})", head_ranks,
          request.num_devices, closest_divisor(request.num_devices, head_ranks));
  std::int64_t product = 1;
  std::vector<std::string> factors;
  for (const auto& [key, degree] :
       {std::pair{std::string_view("parallelism.tensor_parallel_degree"), p.tensor_parallel_degree},
        {"parallelism.pipeline_parallel_degree", p.pipeline_parallel_degree},
        {"parallelism.context_parallel_degree", p.context_parallel_degree},
        {"parallelism.data_parallel_replicate_degree", p.data_parallel_replicate_degree},
        {fixed_shard_key, p.data_parallel_shard_degree}}) {
    if (!request.fixes(key) || degree == 1) continue;
    const std::int64_t devices = request.num_devices;
    require(devices % degree == 0, "{} = {} does not divide --gpus={} (use {})", key, degree, devices,
            closest_divisor(devices, degree));
    product *= degree;
    factors.push_back(fmt::format("{} = {}", key, degree));
    require(devices % product == 0, "{} make {} ranks, {} --gpus={} (use --gpus={})", fmt::join(factors, " x "),
            product, product > devices ? "more than" : "which do not divide", devices,
            std::max<std::int64_t>(devices / product, 1) * product);
  }
  return product;
}

/// Whether a sentence names a key that the search is free to choose: then it is about one choice of many.
bool names_open_key(std::string_view sentence, const PlanRequest& request) {
  return std::ranges::any_of(config_keys(), [&](const ConfigKey& key) {
    const std::string_view name = key.name == "parallelism.order" ? key.name : key.name.substr(key.name.find('.') + 1);
    return is_chosen(key.name) && !request.fixes(key.name) && sentence.find(name) != std::string_view::npos;
  });
}

/// Throws Error for fixed keys that contradict each other, with all ranks that they leave along the shard axis.
void require_no_contradiction(const PlanRequest& request, std::int64_t product) {
  RunConfig config = request.base;
  if (!request.fixes(fixed_shard_key)) config.parallelism.data_parallel_shard_degree = request.num_devices / product;
  std::int64_t& batch = config.training.global_batch_size;  // closest_batch says what is wrong with it
  const std::int64_t unit = config.data_parallel_degree() * config.training.micro_batch_size;
  batch = (batch + unit - 1) / unit * unit;
  if (batch > most_sequences_of_a_step) return;
  try {
    require_legal(config);
  } catch (const Error& error) {
    if (!names_open_key(error.what(), request)) throw;
  }
}

void require_nodes_of_experts(const PlanRequest& request) {
  const std::int64_t of_node = ranks_of_node(request), num_experts = request.base.model.mixture.num_experts;
  if (request.base.parallelism.expert_dispatch != ExpertDispatch::hierarchical || request.fixes(expert_degree_key) ||
      of_node == 0)
    return;
  const bool has_nodes = of_node > 1 && std::ranges::any_of(divisors(num_experts), [&](std::int64_t ep) {
                           return ep > of_node && ep % of_node == 0 && request.num_devices % ep == 0;
                         });
  require(has_nodes,
          "{} = 'hierarchical' needs experts over several nodes, and of {} ranks on nodes of {} no whole nodes divide "
          "model.num_experts = {} (use 'auto')",
          dispatch_key, request.num_devices, of_node, num_experts);
}

/// 0: none.
std::int64_t closest_batch(const PlanRequest& request) {
  const std::int64_t wanted = request.base.training.global_batch_size,
                     micro_batch =
                         request.fixes("training.micro_batch_size") ? request.base.training.micro_batch_size : 1;
  const auto distance = [&](std::int64_t batch) { return std::abs(batch - wanted); };
  std::vector<std::int64_t> batches;
  for (const std::int64_t ranks : divisors(request.num_devices)) {
    const std::int64_t unit = ranks * micro_batch, below = wanted / unit * unit;
    for (const std::int64_t batch : {below, below + unit})
      if (batch > 0 && batch != wanted && batch <= most_sequences_of_a_step) batches.push_back(batch);
  }
  std::ranges::sort(
      batches, [&](std::int64_t a, std::int64_t b) { return std::pair(distance(a), a) < std::pair(distance(b), b); });
  batches.erase(std::ranges::unique(batches).begin(), batches.end());
  PlanRequest other = request;
  const auto found = std::ranges::find_if(batches, [&](std::int64_t batch) {
    other.base.training.global_batch_size = batch;
    return PlanSpace::has_layouts(other);
  });
  return found == batches.end() ? 0 : *found;
}

}  // namespace

void refuse_without_layouts(const PlanRequest& request) {
  require_no_contradiction(request, product_of_degrees(request));
  require_nodes_of_experts(request);
  std::vector<std::string> kept, others;
  RunConfig base = request.base;
  for (const std::string& key : request.fixed) {
    kept.push_back(fmt::format("{} = {}", key, to_toml(value_of(*find_config_key(key), base))));
    if (const std::string value = closest_value(request, key); !value.empty())
      others.push_back(fmt::format("{} = {}", key, value));
  }
  if (const std::int64_t batch = closest_batch(request); batch > 0)
    others.push_back(fmt::format("--global-batch-size={}", batch));
  if (others.empty()) others.emplace_back(request.fixed.empty() ? "other --gpus" : "other values of several keys");
  throw Error(fmt::format("no layout of {} on --gpus={} has training.global_batch_size = {}{}{} (use {})",
                          name_of(request.base.model.family), request.num_devices,
                          request.base.training.global_batch_size, kept.empty() ? "" : " and ",
                          fmt::join(kept, " and "), fmt::join(others, " or ")));
}

}  // namespace echelon
