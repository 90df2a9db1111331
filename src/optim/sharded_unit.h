// A unit's parameters, gradients and optimizer state in flat buffers, and the operations of a step on them: gather,
// reduce, clip, update. The ZeRO level (Rajbhandari et al. 2020, arXiv:1910.02054) says what is sharded over the shard
// group. A rank stores only its own part of that.
//
//     level 0   nothing: gradients are all-reduced, and every rank updates everything
//     level 1   optimizer state: gradients are reduce-scattered once a step, a rank updates its part, and the parts are
//               gathered again
//     level 2   gradients too: computed in a whole buffer that lives for one microbatch, reduce-scattered and added to
//               the part
//     level 3   parameters too: gathered into a whole buffer before they are used, and released afterwards
//
// Model code never asks for the level: it sees whole parameters and whole gradients.
#pragma once

#include "comm/mesh.h"
#include "ops/ops.h"
#include "optim/bucket_memory.h"

#include <functional>
#include <vector>

namespace echelon {

/// How a unit is sharded along the data axes. Its parameters say over which ranks.
struct ShardOptions {
  int level = 0;  // 0 where no shard group has more than one rank
  // Hybrid sharding: some shard group and its replicate group have several ranks, so the owned parts are summed in an
  // action of its own.
  bool reduces_parts = false;
  bool is_first_copy = true;  // of a tied weight's two, the one that counts in the norm and is written to checkpoints
  DType dtype = DType::float32;
  DType grad_dtype = DType::float32;
  DType reduce_dtype = DType::float32;  // of gradients while they are reduced over the data axes; else grad_dtype
  DType moments_dtype = DType::float32;
  bool stores_remainders = false;  // instead of float32 masters with bfloat16 parameters: tensor/remainder.h

  /// The optimizer's own copy exists only if parameters are too coarse for it.
  [[nodiscard]] bool has_master() const { return dtype != accumulate_dtype(dtype); }
  [[nodiscard]] DType master_dtype() const { return stores_remainders ? DType::int16 : accumulate_dtype(dtype); }
  [[nodiscard]] bool shards_gradients() const { return level >= 2; }
  [[nodiscard]] bool shards_parameters() const { return level >= 3; }
  /// Gradients are converted for their reduction, which takes a buffer of its own.
  [[nodiscard]] bool converts_gradients() const { return reduce_dtype != grad_dtype; }
};

struct AdamWOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;  // from 1
  std::int64_t seed = 1;  // of the random bits that round coarse moments
  bool operator==(const AdamWOptions&) const = default;
};
/// What of them the update reads from the backend's memory; its grad_scale is 1.
[[nodiscard]] AdamWScalars scalars_of(const AdamWOptions& adamw);

class ShardedUnit {
 public:
  /// On `rank` of the mesh.
  ShardedUnit(const std::vector<Param*>& params, const ShardOptions& options, const MeshShape& mesh, int rank);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  /// As a rank has it that differs from this one along the data axes alone. Before it is bound.
  void place_at(const MeshShape& mesh, int rank) {
    for (Bucket& bucket : buckets_) bucket.place_at(mesh, rank);
  }
  [[nodiscard]] const ShardOptions& options() const { return options_; }
  [[nodiscard]] bool sums_replicas() const;
  /// This rank's copy of some bucket counts in the norm and is written to checkpoints.
  [[nodiscard]] bool has_first_copy() const;
  /// What a unit stores between actions, bucket by bucket: parameters (at level 3 the owned part). Unless they are
  /// frozen, also gradients (from level 2 on the owned part), and the owned part of both moments and of master weights,
  /// if any.
  [[nodiscard]] std::vector<StateBuffer> state_buffers() const;
  [[nodiscard]] const BucketMemory& memory(std::size_t bucket) const { return memory_[bucket]; }
  /// Some elements of the bucket, which the owned part has.
  [[nodiscard]] Tensor state_in(StateRole role, std::size_t bucket, Range range) const;
  /// The owned part of the parameters and of the gradients, which at the end of a step are summed over all ranks.
  [[nodiscard]] Tensor param_part(std::size_t bucket) const { return owned_part(memory_[bucket].param, bucket); }
  [[nodiscard]] Tensor grad_part(std::size_t bucket) const {
    return buckets_[bucket].trains ? owned_part(memory_[bucket].grad, bucket) : Tensor();
  }

  /// Gives each of state_buffers() its memory, and every parameter its views into what of it is whole.
  void bind(const std::function<Tensor(const StateBuffer&)>& memory_of);
  /// Binds whole buffers, one per bucket, for what is sharded: parameters until they are released, gradients until
  /// other buffers are bound. Those of gradients are empty for frozen buckets.
  void bind_parameters(std::vector<Tensor> whole);
  void bind_gradients(std::vector<Tensor> whole);
  /// Parameters must not be read until they are bound and gathered again.
  void release_parameters();
  /// After the owned parameters were written: the master weights take their values.
  void refresh_master(Ops& ops);

  /// At the start of a step: zeroes what the backward pass adds to, or from level 2 on the owned part.
  void clear_gradients(Ops& ops);
  /// Zeroes what the backward pass adds to, except gradients whose first matmul overwrites them.
  void zero_gradients(Ops& ops);

  /// Over the shard groups, into the whole parameters; frozen ones only where they are sharded.
  [[nodiscard]] std::vector<Pending> gather_parameters(Ops& ops, Mesh& mesh);
  /// The same of all that a checkpoint has, after their owned parts were read from one.
  [[nodiscard]] std::vector<Pending> gather_saved(Ops& ops, Mesh& mesh);
  /// Sums whole gradients over the shard groups: all-reduce at level 0, else reduce-scatter. Where a shard group is one
  /// rank, over the replicas, unless these are summed by reduce_parts(). `converted`: buffers in reduce_dtype like the
  /// whole ones if converts_gradients(), else empty. Unless is_reduced_in_place(), store_gradients() takes what came
  /// out.
  [[nodiscard]] std::vector<Pending> reduce_gradients(Ops& ops, Mesh& mesh, std::vector<Tensor> converted = {});
  [[nodiscard]] bool is_reduced_in_place() const {
    return !options_.shards_gradients() && !options_.converts_gradients();
  }
  /// The owned part takes what was reduced; from level 2 on it is the sum over the step's microbatches so far.
  void store_gradients(Ops& ops);
  /// Sums the owned parts over the replicas of a sharded model (hybrid sharding). `converted`: as above, of the owned
  /// part; then it is done when it returns.
  [[nodiscard]] std::vector<Pending> reduce_parts(Ops& ops, Mesh& mesh, const std::vector<Tensor>& converted = {});
  /// Sums owned gradients over their partial groups.
  [[nodiscard]] std::vector<Pending> sum_replicas(Ops& ops, Mesh& mesh);
  /// Sums the owned gradients of a tied weight over its copies.
  [[nodiscard]] std::vector<Pending> sum_tied(Ops& ops, Mesh& mesh);
  /// sum (float64 [1]) += squares of the gradients that count here: over all ranks, each parameter once.
  void add_squares(Ops& ops, Tensor sum) const;
  /// lr, step and the gradients' factor are read from `scalars` (float64 [num_adamw_scalars]) when it runs, not from
  /// `adamw`.
  void update(Ops& ops, const AdamWOptions& adamw, Tensor scalars);

 private:
  [[nodiscard]] Tensor owned_part(Tensor memory, std::size_t bucket) const;
  [[nodiscard]] std::vector<Pending> gather(Ops& ops, Mesh& mesh, const std::function<bool(const Bucket&)>& is_wanted);
  /// Sums the owned gradients of the buckets that have this group.
  [[nodiscard]] std::vector<Pending> sum_over(std::optional<Group> GradientGroups::*group, Ops& ops, Mesh& mesh);

  ShardOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> trained_;  // buckets with gradients
  std::vector<BucketMemory> memory_;
  std::vector<Tensor> params_, grads_;  // whole, by bucket; empty while there are none
  std::vector<Tensor> reduced_;         // what the last reduction leaves of the owned parts
};

}  // namespace echelon
