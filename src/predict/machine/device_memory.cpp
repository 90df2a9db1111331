#include "predict/machine/device_memory.h"

#include "nn/head_split.h"
#include "spec/groups.h"

#include <algorithm>
#include <set>

namespace echelon {

PartialGroups partial_groups(const ModelSpec& model, int tp, int cp, const KeyExchange& exchange) {
  const bool has_ring = exchange.method != ContextMethod::all_gather;
  return {.has_tied_weight = model.tie_word_embeddings,
          .kv_replicas = kv_replicas(model, tp),
          .head_ranks = exchange.head_ranks,
          .ring_ranks = has_ring ? cp / exchange.head_ranks : 1,
          .has_experts = model.mixture.exists()};
}

PartialGroups partial_groups(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  PartialGroups parts = partial_groups(config.model, static_cast<int>(p.tensor_parallel_degree),
                                       static_cast<int>(p.context_parallel_degree), key_exchange(p));
  parts.expert_ranks = num_expert_ranks(p);
  parts.feature_ranks = num_feature_ranks(p);
  return parts;
}

int num_communicators(const MeshShape& mesh, const PartialGroups& parts) {
  std::set<AxisSet> groups;
  const auto add = [&](const Group& group) {
    AxisSet axes;
    for (int axis = 0; axis < num_axes; ++axis)
      if (group.axes.contains(static_cast<Axis>(axis)) && mesh.degree(static_cast<Axis>(axis)) > 1)
        axes = axes | AxisSet{static_cast<Axis>(axis)};
    if (axes != AxisSet()) groups.insert(axes);
  };
  for (const Group& group : {step_group, data_group, shard_group, replicate_group, tp_group, cp_group, pipeline_group})
    add(group);
  const int num_stages = mesh.degree(Axis::pp), num_neighbours = std::min(num_stages - 1, 2);
  const auto is_part = [](int ranks, int all) { return ranks > 1 && ranks < all; };
  int num_parts = parts.has_tied_weight && num_stages > 2 ? 1 : 0;  // the ends of two stages are all of them
  if (is_part(parts.kv_replicas, mesh.degree(Axis::tp))) ++num_parts;
  if (is_part(parts.head_ranks, mesh.degree(Axis::cp))) num_parts += 2;
  if (parts.ring_ranks > 1) ++num_parts;
  if (parts.has_experts) add(sequence_group);
  const int shard_ranks = mesh.degree(Axis::dp_shard) * mesh.degree(Axis::cp) * mesh.degree(Axis::tp);
  const bool are_divided = is_part(parts.expert_ranks, shard_ranks);
  if (are_divided) num_parts += 2;
  if (parts.has_experts && !are_divided) add(expert_holders_group(1));
  // Rows go over parts of the expert group: instead of all of it, unless these are all ranks anyway.
  if (is_part(parts.feature_ranks, parts.expert_ranks)) num_parts += are_divided ? 1 : 2;
  return static_cast<int>(groups.size()) + 2 * num_neighbours + num_parts;
}

std::int64_t arena_limit_bytes(const DeviceSpec& device, int num_communicators) {
  return std::max<std::int64_t>(
      0, device.memory_bytes - device.reserved_bytes - num_communicators * device.communicator_bytes);
}

}  // namespace echelon
