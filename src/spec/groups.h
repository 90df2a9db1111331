// The process groups of a run, by what they are for.
#pragma once

#include "spec/mesh_shape.h"

namespace echelon {

/// The tensor-parallel ranks: collectives inside layers.
inline constexpr Group tp_group = {AxisSet{Axis::tp}, Group::Part::all, 0};
/// The `num_replicas` tensor-parallel ranks that hold the same kv heads.
[[nodiscard]] constexpr Group kv_replica_group(int num_replicas) {
  return {AxisSet{Axis::tp}, Group::Part::block, num_replicas};
}

/// The stages of a pipeline: their borders.
inline constexpr Group pipeline_group = {AxisSet{Axis::pp}, Group::Part::all, 0};
/// The first and the last stage: a tied weight.
inline constexpr Group tied_group = {AxisSet{Axis::pp}, Group::Part::ends, 0};

/// The ranks over which optimizer state is cut, and those that all hold the same of it.
inline constexpr Group shard_group = {AxisSet{Axis::dp_shard, Axis::cp}, Group::Part::all, 0};
inline constexpr Group replicate_group = {AxisSet{Axis::dp_replicate}, Group::Part::all, 0};

/// Ranks that see different samples, and everybody.
inline constexpr Group data_group = {data_axes, Group::Part::all, 0};
inline constexpr Group world_group = {world_axes, Group::Part::all, 0};

}  // namespace echelon
