#include "optim/sharded_unit.h"

#include "spec/groups.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

Tensor part_of(Tensor bucket, Range range) { return bucket.rows(range.first, range.count); }

}  // namespace

ShardedUnit::ShardedUnit(const std::vector<Param*>& params, const ShardOptions& options)
    : options_(options), buckets_(make_buckets(params, options.shard_degree)), memory_(buckets_.size()) {}

bool ShardedUnit::sums_replicas() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.replica_sum != ReplicaSum::none; });
}

void ShardedUnit::bind(std::vector<BucketMemory> memory) {
  memory_ = std::move(memory);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Segment& segment : buckets_[b].segments) {
      const Sizes sizes = segment.param->local_sizes();
      segment.param->value = part_of(memory_[b].param, {segment.offset, segment.count}).reshaped(sizes);
      segment.param->grad = part_of(memory_[b].grad, {segment.offset, segment.count}).reshaped(sizes);
    }
}

void ShardedUnit::refresh_master(Ops& ops) {
  if (!options_.has_master()) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) ops.copy(memory_[b].master, part_of(memory_[b].param, owned(buckets_[b])));
}

void ShardedUnit::clear_gradients(Ops& ops) {
  for (const Bucket& bucket : buckets_)
    for (const Segment& segment : bucket.segments) {
      Param& param = *segment.param;
      param.has_grad = !param.is_formed_by_product;
      if (param.has_grad) ops.fill(param.grad, 0.0);
    }
}

std::vector<Pending> ShardedUnit::sum_replicas(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].replica_sum == ReplicaSum::none) continue;
    Comm& comm = mesh.comm(buckets_[b].replica_sum == ReplicaSum::tp ? tp_group : kv_replica_group(options_.kv_replicas));
    pending.push_back(comm.all_reduce(memory_[b].grad, ReduceOp::sum));
  }
  return pending;
}

std::vector<Pending> ShardedUnit::reduce_gradients(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor grad = memory_[b].grad;
    const bool is_sharded = options_.shard_degree > 1;
    pending.push_back(is_sharded ? mesh.comm(shard_group).reduce_scatter(part_of(grad, owned(buckets_[b])), grad, ReduceOp::sum)
                                 : mesh.comm(replicate_group).all_reduce(grad, ReduceOp::sum));
  }
  return pending;
}

std::vector<Pending> ShardedUnit::sum_tied(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending.push_back(mesh.comm(tied_group).all_reduce(part_of(memory_[b].grad, owned(buckets_[b])), ReduceOp::sum));
  return pending;
}

void ShardedUnit::add_squares(Ops& ops, Tensor sum) const {
  if (!options_.is_first_copy) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Segment& segment : buckets_[b].segments) {
      const Range part = overlap(segment, owned(buckets_[b]));
      if (segment.param->is_first_copy && part.count > 0) ops.sum_of_squares(part_of(memory_[b].grad, part), sum);
    }
}

void ShardedUnit::update(Ops& ops, const AdamWOptions& adamw) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Range mine = owned(buckets_[b]);
    for (const Segment& segment : buckets_[b].segments) {
      const Range part = overlap(segment, mine);
      if (part.count == 0) continue;
      const Range in_shard = {part.first - mine.first, part.count};
      const Tensor param = part_of(memory_[b].param, part);
      ops.adamw({.param = param,
                 .master = options_.has_master() ? part_of(memory_[b].master, in_shard) : param,
                 .grad = part_of(memory_[b].grad, part),
                 .m = part_of(memory_[b].m, in_shard),
                 .v = part_of(memory_[b].v, in_shard),
                 .lr = adamw.lr,
                 .beta1 = adamw.beta1,
                 .beta2 = adamw.beta2,
                 .eps = adamw.eps,
                 .weight_decay = segment.param->decays ? adamw.weight_decay : 0.0,
                 .grad_scale = adamw.grad_scale,
                 .step = adamw.step});
    }
  }
}

std::vector<Pending> ShardedUnit::gather_parameters(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending.push_back(mesh.comm(shard_group).all_gather(memory_[b].param, part_of(memory_[b].param, owned(buckets_[b]))));
  return pending;
}

}  // namespace echelon
