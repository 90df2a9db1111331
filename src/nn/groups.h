// The process groups that layers and their gradients use.
#pragma once

#include "nn/head_split.h"
#include "nn/param.h"
#include "spec/mesh_shape.h"

namespace echelon {

/// The tensor-parallel ranks.
inline constexpr Group tp_group = {AxisSet{Axis::tp}, Group::Part::all, 0};

/// The tensor-parallel ranks that hold the same kv heads.
[[nodiscard]] inline Group kv_replica_group(const ModelSpec& model, int tp) { return {AxisSet{Axis::tp}, Group::Part::block, kv_replicas(model, tp)}; }

/// The ranks over which a gradient with this `sum` is summed before the reduction over the data axes. `sum` is not `none`.
[[nodiscard]] inline Group group_of(ReplicaSum sum, const ModelSpec& model, int tp) {
  return sum == ReplicaSum::kv_replicas ? kv_replica_group(model, tp) : tp_group;
}

}  // namespace echelon
