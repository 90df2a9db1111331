// The process groups of a run, by purpose.
#pragma once

#include "spec/mesh_shape.h"

#include <optional>

namespace echelon {

/// The tensor-parallel ranks: collectives inside layers.
inline constexpr Group tp_group = {AxisSet{Axis::tp}, Group::Part::all, 0};
/// The `num_replicas` tensor-parallel ranks that hold the same kv heads.
[[nodiscard]] constexpr Group kv_replica_group(int num_replicas) {
  return {AxisSet{Axis::tp}, Group::Part::block, num_replicas};
}

/// One of each of them: together they have every kv head once.
[[nodiscard]] constexpr Group tp_strided_group(int num_replicas) {
  return num_replicas == 1 ? tp_group : Group{AxisSet{Axis::tp}, Group::Part::strided, num_replicas};
}

/// The ranks that hold different tokens of the same sequences: transfers inside attention.
inline constexpr Group cp_group = {AxisSet{Axis::cp}, Group::Part::all, 0};

/// The `num_ranks` neighbours of it that exchange heads, and the ranks at one place of such blocks: a ring across them.
[[nodiscard]] constexpr Group cp_heads_group(int num_ranks) {
  return {AxisSet{Axis::cp}, Group::Part::block, num_ranks};
}
[[nodiscard]] constexpr Group cp_ring_group(int num_ranks) {
  return {AxisSet{Axis::cp}, Group::Part::strided, num_ranks};
}

/// The stages of a pipeline: transfers between neighbours.
inline constexpr Group pipeline_group = {AxisSet{Axis::pp}, Group::Part::all, 0};
/// The first and the last stage: a tied weight.
inline constexpr Group tied_group = {AxisSet{Axis::pp}, Group::Part::ends, 0};

/// The ranks over which optimizer state is sharded, and the ranks that replicate it.
inline constexpr Group shard_group = {AxisSet{Axis::dp_shard, Axis::cp}, Group::Part::all, 0};
inline constexpr Group replicate_group = {AxisSet{Axis::dp_replicate}, Group::Part::all, 0};

/// The ranks of a stage over which experts and their tokens may be divided: e = (dp_shard * CP + cp) * TP + tp.
inline constexpr AxisSet expert_axes = {Axis::dp_shard, Axis::cp, Axis::tp};
/// The `num_ranks` neighbours among them that have all experts together, and the ranks that have the same ones.
[[nodiscard]] constexpr Group expert_group(int num_ranks) { return {expert_axes, Group::Part::block, num_ranks}; }
[[nodiscard]] constexpr Group expert_holders_group(int num_ranks) {
  return num_ranks == 1 ? Group{expert_axes, Group::Part::all, 0} : Group{expert_axes, Group::Part::strided, num_ranks};
}
/// Of the `num_ranks` that have all experts together, the `inside` neighbours on one node, or with features of the same
/// experts; and those at one place of every such block.
[[nodiscard]] constexpr Group expert_inner_group(int inside) { return {expert_axes, Group::Part::block, inside}; }
[[nodiscard]] constexpr Group expert_across_group(int num_ranks, int inside) {
  return inside == 1 ? expert_group(num_ranks) : Group{expert_axes, Group::Part::strided, inside, num_ranks};
}
/// The ranks that hold tokens of the same sequences: parts of them, under sequence parallelism.
inline constexpr Group sequence_group = {AxisSet{Axis::cp, Axis::tp}, Group::Part::all, 0};

/// Ranks that see different data; sums the number of targets.
inline constexpr Group data_group = {data_axes, Group::Part::all, 0};
/// The ranks of one copy of the model. A step sums the gradient norm, the loss and stop requests over them.
inline constexpr Group step_group = {step_axes, Group::Part::all, 0};
/// Every rank of the run.
inline constexpr Group world_group = {world_axes, Group::Part::all, 0};

/// The most thread blocks that an operation of a group may take from the matmuls of its GPU (NCCL's CTAs, each with
/// buffers of its own), or any_blocks: what layers wait for.
inline constexpr int any_blocks = 0, data_blocks = 16, transfer_blocks = 4;
[[nodiscard]] constexpr int most_blocks(const Group& group) {
  if (group == pipeline_group) return transfer_blocks;
  // The step's group has those that share its buffers, which have at most as many blocks.
  const bool has_experts = group.axes == expert_axes && group.part != Group::Part::block && group.within == 0;
  const bool sums_gradients = group == step_group || group == data_group || group == shard_group ||
                              group == replicate_group || group == tied_group || has_experts;
  return sums_gradients ? data_blocks : any_blocks;
}
/// Of ranks that are several groups.
[[nodiscard]] constexpr int most_blocks(int a, int b) {
  return a == any_blocks || b == any_blocks ? any_blocks : (a > b ? a : b);
}

/// The group that contains this one and whose operations and its own take turns anyway, so that the two may share
/// buffers: none for most.
[[nodiscard]] constexpr std::optional<Group> parent_of(const Group& group) {
  if (group == data_group) return step_group;
  if (group == shard_group) return data_group;
  if (group.axes == tp_group.axes && group.part == Group::Part::block) return tp_group;
  return std::nullopt;
}

/// The ranks over which the gradient of a parameter is summed. The defaults fit a parameter that every rank along the
/// data axes holds and uses.
struct GradientGroups {
  Group shard = shard_group;          // ZeRO shards over these ranks
  Group replicate = replicate_group;  // ranks that hold the same shard
  std::optional<Group> partial = {};  // each of these ranks holds a partial sum
  std::optional<Group> tied = {};     // ranks with a copy of a tied weight
  auto operator<=>(const GradientGroups&) const = default;
};

}  // namespace echelon
