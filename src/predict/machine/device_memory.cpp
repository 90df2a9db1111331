#include "predict/machine/device_memory.h"

#include "nn/head_split.h"
#include "spec/groups.h"

#include <algorithm>
#include <map>

namespace echelon {

PartialGroups partial_groups(const ModelSpec& model, int tp, int cp, const KeyExchange& exchange) {
  const bool has_ring = exchange.method != ContextMethod::all_gather;
  return {.has_tied_weight = model.tie_word_embeddings,
          .kv_replicas = kv_replicas(model, tp),
          .head_ranks = exchange.head_ranks,
          .ring_ranks = has_ring ? cp / exchange.head_ranks : 1,
          .has_experts = model.has_experts()};
}

PartialGroups partial_groups(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  PartialGroups parts = partial_groups(config.model, static_cast<int>(p.tensor_parallel_degree),
                                       static_cast<int>(p.context_parallel_degree), key_exchange(p));
  parts.expert_ranks = num_expert_ranks(p);
  parts.feature_ranks = inner_expert_ranks(config);
  return parts;
}

Communicators communicators_of(const MeshShape& mesh, const PartialGroups& parts) {
  std::map<AxisSet, int> groups;  // and their most blocks
  Communicators result;
  const auto count = [&](int blocks, int num = 1) {
    (blocks == any_blocks    ? result.with_any_blocks
     : blocks == data_blocks ? result.with_data_blocks
                             : result.with_transfer_blocks) += num;
  };
  const auto add = [&](const Group& group) {
    AxisSet axes;
    for (int axis = 0; axis < num_axes; ++axis)
      if (group.axes.contains(static_cast<Axis>(axis)) && mesh.degree(static_cast<Axis>(axis)) > 1)
        axes = axes | AxisSet{static_cast<Axis>(axis)};
    if (axes == AxisSet()) return;
    const auto [known, is_new] = groups.try_emplace(axes, most_blocks(group));
    known->second = most_blocks(known->second, most_blocks(group));
  };
  for (const Group& group : {step_group, data_group, shard_group, replicate_group, tp_group, cp_group, pipeline_group})
    add(group);
  const int num_stages = mesh.degree(Axis::pp), num_neighbours = std::min(num_stages - 1, 2);
  const auto is_part = [](int ranks, int all) { return ranks > 1 && ranks < all; };
  if (parts.has_tied_weight && num_stages > 2) count(data_blocks);  // the ends of two stages are all of them
  if (parts.has_tied_weight && num_stages == 2) add(tied_group);
  if (is_part(parts.kv_replicas, mesh.degree(Axis::tp))) count(any_blocks);
  if (is_part(parts.head_ranks, mesh.degree(Axis::cp))) count(any_blocks, 2);
  if (parts.ring_ranks > 1) count(any_blocks);
  if (parts.has_experts) add(sequence_group);
  const int shard_ranks = mesh.degree(Axis::dp_shard) * mesh.degree(Axis::cp) * mesh.degree(Axis::tp);
  const bool are_divided = is_part(parts.expert_ranks, shard_ranks);
  if (are_divided) {
    count(any_blocks);
    count(data_blocks);
  } else if (parts.has_experts) {
    add(expert_holders_group(1));
    if (parts.expert_ranks > 1) add(expert_group(0));
  }
  // Rows go over parts of the expert group: instead of all of it, unless these are all ranks anyway.
  if (is_part(parts.feature_ranks, parts.expert_ranks)) count(any_blocks, are_divided ? 1 : 2);
  count(transfer_blocks, 2 * num_neighbours);
  for (const auto& [axes, blocks] : groups) count(blocks);
  return result;
}

// NCCL 2.19, src/include/device.h: 4 + 0.5 + 4.7 MiB of its protocols for a channel.
std::int64_t arena_limit_bytes(const DeviceSpec& device, const Communicators& communicators) {
  constexpr std::int64_t block_bytes = (std::int64_t{92} << 20) / 10;
  const auto bytes_of = [&](int most_blocks) { return std::min(device.communicator_bytes, most_blocks * block_bytes); };
  return std::max<std::int64_t>(0, device.memory_bytes - device.reserved_bytes -
                                       communicators.with_any_blocks * device.communicator_bytes -
                                       communicators.with_data_blocks * bytes_of(data_blocks) -
                                       communicators.with_transfer_blocks * bytes_of(transfer_blocks));
}

}  // namespace echelon
