// A unit's parameters, gradients and optimizer state in flat buffers, and what is done to them once a step: reduce, clip, update, gather.
// One mechanism with a level: at level 0 every rank of the data axes has and updates everything; at level 1 (ZeRO-1) gradients are reduce-scattered, a rank
// updates its shard, and the shards are gathered again. Model code never asks for the level: it sees whole parameters.
#pragma once

#include "comm/mesh.h"
#include "ops/ops.h"
#include "optim/bucket.h"

#include <vector>

namespace echelon {

/// How the data axes hold a unit.
struct ShardOptions {
  int shard_degree = 1;  // ranks over which optimizer state is cut (dp_shard x cp); 1: level 0
  int shard_index = 0;
  int kv_replicas = 1;        // tensor-parallel ranks that share a kv head
  bool is_first_copy = true;  // of its copies over dp_replicate, and of a tied weight's two, the one that counts in the norm and is written to checkpoints
  DType dtype = DType::float32;
  DType grad_dtype = DType::float32;

  /// The optimizer's own copy exists only if parameters are too coarse for it.
  [[nodiscard]] bool has_master() const { return dtype != accumulate_dtype(dtype); }
};

/// The flat memory of one bucket. param, grad: num_elements; master (empty without one), m, v: the owned part.
struct BucketMemory {
  Tensor param, grad, master, m, v;
};

struct AdamWOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  double grad_scale = 1;  // clipping times the correction from expected to counted tokens
  std::int64_t step = 1;  // from 1
};

class ShardedUnit {
 public:
  ShardedUnit(const std::vector<Param*>& params, const ShardOptions& options);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const ShardOptions& options() const { return options_; }
  [[nodiscard]] bool sums_replicas() const;
  /// This rank's part of a bucket: all of it at level 0.
  [[nodiscard]] Range owned(const Bucket& bucket) const { return bucket.shard(options_.shard_index, options_.shard_degree); }
  [[nodiscard]] const BucketMemory& memory(std::size_t bucket) const { return memory_[bucket]; }

  /// Gives the buckets their memory and every parameter its views into it.
  void bind(std::vector<BucketMemory> memory);
  /// After parameters were written: the master weights take their values.
  void refresh_master(Ops& ops);

  /// Zeroes what the backward pass adds to; what a product forms first is overwritten by it.
  void clear_gradients(Ops& ops);
  /// Sums gradients that are partial on tensor-parallel ranks.
  [[nodiscard]] std::vector<Pending> sum_replicas(Ops& ops, Mesh& mesh);
  /// Sums gradients over the data axes: all-reduce at level 0, reduce-scatter into the owned part at level 1.
  [[nodiscard]] std::vector<Pending> reduce_gradients(Ops& ops, Mesh& mesh);
  /// Sums the owned gradients of a tied weight over the first and the last pipeline stage.
  [[nodiscard]] std::vector<Pending> sum_tied(Ops& ops, Mesh& mesh);
  /// sum (float64 [1]) += squares of the gradients that count here: over all ranks, each parameter once.
  void add_squares(Ops& ops, Tensor sum) const;
  void update(Ops& ops, const AdamWOptions& adamw);
  [[nodiscard]] std::vector<Pending> gather_parameters(Ops& ops, Mesh& mesh);

 private:
  ShardOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<BucketMemory> memory_;
};

}  // namespace echelon
