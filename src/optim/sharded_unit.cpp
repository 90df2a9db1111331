#include "optim/sharded_unit.h"

#include "nn/param_slice.h"
#include "spec/groups.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace echelon {
namespace {

Tensor part_of(Tensor bucket, Range range) { return bucket.rows(range.first, range.count); }

/// The parameter's own sizes at its place in a bucket.
Tensor view_of(Tensor bucket, const Segment& segment) {
  return part_of(bucket, {segment.offset, segment.count}).reshaped(segment.param->local_sizes());
}

/// Of the elements [first, ...) of the rank's slice of a parameter. Initial weights come from the same generator; no
/// step is 0, so they have other bits.
RoundingNoise rounding_noise(const Param& param, std::int64_t first, const AdamWOptions& adamw) {
  const ParamSlice slice = slice_of(param);
  return {.stream = stream_of(param),
          .key = static_cast<std::uint64_t>(adamw.seed),
          .first = first,
          .row = slice.count * slice.inner,
          .stride = slice.global_count * slice.inner,
          .offset = slice.first * slice.inner};
}

}  // namespace

AdamWScalars scalars_of(const AdamWOptions& adamw) {
  const auto step = static_cast<double>(adamw.step);
  return {.lr = adamw.lr,
          .step_size = adamw.lr / (1 - std::pow(adamw.beta1, step)),
          .sqrt_bias2 = std::sqrt(1 - std::pow(adamw.beta2, step)),
          .step = step};
}

ShardedUnit::ShardedUnit(const std::vector<Param*>& params, const ShardOptions& options)
    : options_(options), buckets_(make_buckets(params, options.shard_degree)), memory_(buckets_.size()) {}

bool ShardedUnit::sums_replicas() const {
  return std::any_of(buckets_.begin(), buckets_.end(),
                     [](const Bucket& bucket) { return bucket.replica_sum != ReplicaSum::none; });
}

Tensor ShardedUnit::owned_part(Tensor memory, std::size_t bucket) const {
  const Range range = owned(buckets_[bucket]);
  return memory.num_elements() == range.count ? memory : part_of(memory, range);
}

void ShardedUnit::bind(std::vector<BucketMemory> memory) {
  memory_ = std::move(memory);
  std::vector<Tensor> params, grads;
  for (const BucketMemory& each : memory_) {
    params.push_back(each.param);
    grads.push_back(each.grad);
  }
  if (options_.shards_parameters())
    release_parameters();
  else
    bind_parameters(std::move(params));
  if (!options_.shards_gradients()) bind_gradients(std::move(grads));
}

void ShardedUnit::bind_parameters(std::vector<Tensor> whole) {
  params_ = std::move(whole);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Segment& segment : buckets_[b].segments) segment.param->value = view_of(params_[b], segment);
}

void ShardedUnit::bind_gradients(std::vector<Tensor> whole) {
  grads_ = std::move(whole);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Segment& segment : buckets_[b].segments) segment.param->grad = view_of(grads_[b], segment);
}

void ShardedUnit::release_parameters() {
  params_.clear();
  for (const Bucket& bucket : buckets_)
    for (const Segment& segment : bucket.segments)
      segment.param->value = {nullptr, options_.dtype, segment.param->local_sizes()};
}

void ShardedUnit::refresh_master(Ops& ops) {
  if (!options_.has_master()) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (options_.stores_remainders)
      ops.fill(memory_[b].master, 0.0);
    else
      ops.copy(memory_[b].master, param_part(b));
  }
}

void ShardedUnit::clear_gradients(Ops& ops) {
  if (!options_.shards_gradients()) return zero_gradients(ops);
  for (std::size_t b = 0; b < buckets_.size(); ++b) ops.fill(grad_part(b), 0.0);
}

void ShardedUnit::zero_gradients(Ops& ops) {
  for (const Bucket& bucket : buckets_)
    for (const Segment& segment : bucket.segments) {
      Param& param = *segment.param;
      param.has_grad = !param.is_formed_by_product;
      if (param.has_grad) ops.fill(param.grad, 0.0);
    }
}

std::vector<Pending> ShardedUnit::gather_parameters(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending.push_back(mesh.comm(shard_group).all_gather(params_[b], param_part(b)));
  return pending;
}

std::vector<Pending> ShardedUnit::reduce_gradients(Ops& ops, Mesh& mesh, std::vector<Tensor> converted) {
  for (std::size_t b = 0; b < converted.size(); ++b) ops.copy(converted[b], grads_[b]);
  ops.publish();
  const std::vector<Tensor>& whole = converted.empty() ? grads_ : converted;
  const bool scatters = options_.shard_degree > 1;
  std::vector<Pending> pending;
  reduced_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    reduced_.push_back(owned_part(whole[b], b));
    pending.push_back(scatters ? mesh.comm(shard_group).reduce_scatter(reduced_[b], whole[b], ReduceOp::sum)
                               : mesh.comm(replicate_group).all_reduce(whole[b], ReduceOp::sum));
  }
  return pending;
}

void ShardedUnit::store_gradients(Ops& ops) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (options_.shards_gradients())
      ops.add(grad_part(b), grad_part(b), reduced_[b]);
    else
      ops.copy(grad_part(b), reduced_[b]);
  }
}

std::vector<Pending> ShardedUnit::reduce_parts(Ops& ops, Mesh& mesh, const std::vector<Tensor>& converted) {
  for (std::size_t b = 0; b < converted.size(); ++b) ops.copy(converted[b], grad_part(b));
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending.push_back(
        mesh.comm(replicate_group).all_reduce(converted.empty() ? grad_part(b) : converted[b], ReduceOp::sum));
  if (converted.empty()) return pending;
  for (Pending& each : pending) each.wait();
  for (std::size_t b = 0; b < converted.size(); ++b) ops.copy(grad_part(b), converted[b]);
  return {};
}

std::vector<Pending> ShardedUnit::sum_replicas(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].replica_sum == ReplicaSum::none) continue;
    Comm& comm =
        mesh.comm(buckets_[b].replica_sum == ReplicaSum::tp ? tp_group : kv_replica_group(options_.kv_replicas));
    pending.push_back(comm.all_reduce(grad_part(b), ReduceOp::sum));
  }
  return pending;
}

std::vector<Pending> ShardedUnit::sum_tied(Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending.push_back(mesh.comm(tied_group).all_reduce(grad_part(b), ReduceOp::sum));
  return pending;
}

void ShardedUnit::add_squares(Ops& ops, Tensor sum) const {
  if (!options_.is_first_copy) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Range mine = owned(buckets_[b]);
    for (const Segment& segment : buckets_[b].segments) {
      const Range part = overlap(segment, mine);
      if (segment.param->is_first_copy && part.count > 0)
        ops.sum_of_squares(part_of(grad_part(b), {part.first - mine.first, part.count}), sum);
    }
  }
}

void ShardedUnit::update(Ops& ops, const AdamWOptions& adamw, Tensor scalars) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Range mine = owned(buckets_[b]);
    for (const Segment& segment : buckets_[b].segments) {
      const Range part = overlap(segment, mine), in_shard = {part.first - mine.first, part.count};
      if (part.count == 0) continue;
      const Tensor param = part_of(param_part(b), in_shard);
      ops.adamw({.param = param,
                 .master = options_.has_master() ? part_of(memory_[b].master, in_shard) : param,
                 .grad = part_of(grad_part(b), in_shard),
                 .m = part_of(memory_[b].m, in_shard),
                 .v = part_of(memory_[b].v, in_shard),
                 .scalars = scalars,
                 .beta1 = adamw.beta1,
                 .beta2 = adamw.beta2,
                 .eps = adamw.eps,
                 .weight_decay = segment.param->decays ? adamw.weight_decay : 0.0,
                 .noise = rounding_noise(*segment.param, part.first - segment.offset, adamw)});
    }
  }
}

}  // namespace echelon
