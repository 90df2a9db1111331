#include "spec/config/run_config.h"

#include "base/error.h"
#include "spec/groups.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace echelon {
MeshShape RunConfig::mesh_shape() const {
  const auto degree = [](std::string_view key, std::int64_t value) {
    require(value >= 1 && value <= std::numeric_limits<int>::max(),
            "parallelism.{} = {} is not a number of ranks (use 1)", key, value);
    return static_cast<int>(value);
  };
  const ParallelConfig& p = parallelism;
  return MeshShape(
      {
          {Axis::dp_replicate, degree("data_parallel_replicate_degree", p.data_parallel_replicate_degree)},
          {Axis::pp, degree("pipeline_parallel_degree", p.pipeline_parallel_degree)},
          {Axis::dp_shard, degree("data_parallel_shard_degree", p.data_parallel_shard_degree)},
          {Axis::cp, degree("context_parallel_degree", p.context_parallel_degree)},
          {Axis::tp, degree("tensor_parallel_degree", p.tensor_parallel_degree)},
      },
      p.order);
}

std::int64_t expert_tensor_degree(const ParallelConfig& p) {
  if (p.expert_tensor_parallel_degree > 0) return p.expert_tensor_parallel_degree;
  return p.sequence_parallel ? 1 : p.tensor_parallel_degree;
}

bool divides_experts_as_dense(const ParallelConfig& p) {
  const std::int64_t etp = expert_tensor_degree(p);
  return etp > 1 && etp == p.tensor_parallel_degree && p.expert_parallel_degree == 1;
}

int num_feature_ranks(const ParallelConfig& p) {
  return divides_experts_as_dense(p) ? 1 : static_cast<int>(expert_tensor_degree(p));
}

int num_expert_ranks(const ParallelConfig& p) {
  return static_cast<int>(p.expert_parallel_degree) * num_feature_ranks(p);
}

bool asks_for_nodes(const ParallelConfig& p) {
  const bool may_have_hops =
      p.expert_dispatch == ExpertDispatch::automatic || p.expert_dispatch == ExpertDispatch::hierarchical;
  return p.expert_parallel_degree > 1 && num_feature_ranks(p) == 1 && may_have_hops && p.ranks_per_node == 0;
}

std::optional<int> ep_neighbours_on_node(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const MeshShape mesh = config.mesh_shape();
  const Group group = expert_group(static_cast<int>(p.expert_parallel_degree));
  const auto node_of = [&](int rank) { return rank / p.ranks_per_node; };
  int on_node = 0;
  for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
    if (mesh.place_in(group, rank).index != 0) continue;
    const std::vector<int> ranks = mesh.ranks_of(group, rank);
    const auto is_there = [&](int each) { return node_of(each) == node_of(ranks.front()); };
    if (on_node == 0) on_node = static_cast<int>(std::ranges::find_if_not(ranks, is_there) - ranks.begin());
    if (std::ssize(ranks) % on_node != 0) return {};
    std::set<std::int64_t> nodes;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const bool is_first = i % static_cast<std::size_t>(on_node) == 0;
      if (is_first ? !nodes.insert(node_of(ranks[i])).second : node_of(ranks[i]) != node_of(ranks[i - 1])) return {};
    }
  }
  return on_node;
}

int ep_on_node(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  require(
      p.expert_dispatch != ExpertDispatch::hierarchical || p.ranks_per_node > 0,
      "parallelism.expert_dispatch = 'hierarchical' needs parallelism.ranks_per_node, which is 0: which ranks share a "
      "node? (use 'direct')");
  if (num_expert_ranks(p) > 1 && p.expert_dispatch == ExpertDispatch::all_gather) return 1;
  if (p.expert_parallel_degree == 1 || num_feature_ranks(p) > 1) return 0;
  if (p.ranks_per_node == 0 || p.expert_dispatch == ExpertDispatch::direct) return 0;
  const int on_node = ep_neighbours_on_node(config).value_or(0);
  const bool has_several = on_node > 1 && on_node < p.expert_parallel_degree;
  return has_several ? on_node : 0;
}

int inner_expert_ranks(const RunConfig& config) {
  const int on_node = ep_on_node(config), of_features = num_feature_ranks(config.parallelism);
  return on_node == 0 && of_features > 1 ? of_features : on_node;
}

int num_expert_holders(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const int num_ranks = num_expert_ranks(p);
  const bool are_as_dense = divides_experts_as_dense(p) || num_ranks * p.tensor_parallel_degree == 1;
  if (!config.model.has_experts() || are_as_dense) return 1;
  return static_cast<int>(p.data_parallel_shard_degree * p.context_parallel_degree * p.tensor_parallel_degree /
                          num_ranks);
}

std::int64_t RunConfig::data_parallel_degree() const {
  return parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree;
}

std::int64_t RunConfig::num_microbatches() const {
  return training.global_batch_size / (data_parallel_degree() * training.micro_batch_size);
}

}  // namespace echelon
