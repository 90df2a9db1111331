#include "optim/sharded_unit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace echelon {
namespace {

Tensor part_of(Tensor bucket, Range range) { return bucket.rows(range.first, range.count); }

/// The parameter's own sizes at its place in a bucket.
Tensor view_of(Tensor bucket, const Segment& segment) {
  return part_of(bucket, {segment.offset, segment.count}).reshaped(segment.param->local_sizes());
}

/// Of a range of the rank's slice of a parameter. Initial weights come from the same generator; no step is 0, so they
/// have other bits.
RoundingNoise rounding_noise(const Param& param, Range range, const AdamWOptions& adamw) {
  return {
      .stream = stream_of(param), .key = static_cast<std::uint64_t>(adamw.seed), .slice = param.slice.elements(range)};
}

}  // namespace

AdamWScalars scalars_of(const AdamWOptions& adamw) {
  const auto step = static_cast<double>(adamw.step);
  return {.lr = adamw.lr,
          .step_size = adamw.lr / (1 - std::pow(adamw.beta1, step)),
          .sqrt_bias2 = std::sqrt(1 - std::pow(adamw.beta2, step)),
          .step = step};
}

ShardedUnit::ShardedUnit(const std::vector<Param*>& params, const ShardOptions& options, const MeshShape& mesh,
                         int rank)
    : options_(options), buckets_(make_buckets(params, mesh, rank, options.level > 0)), memory_(buckets_.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (buckets_[b].trains) trained_.push_back(b);
}

bool ShardedUnit::sums_replicas() const {
  return std::ranges::any_of(trained_, [this](std::size_t b) { return buckets_[b].groups.partial.has_value(); });
}

bool ShardedUnit::has_first_copy() const {
  return options_.is_first_copy && std::any_of(buckets_.begin(), buckets_.end(), std::mem_fn(&Bucket::is_first_copy));
}

Tensor ShardedUnit::state_in(StateRole role, std::size_t bucket, Range range) const {
  BucketMemory memory = memory_[bucket];
  const Tensor owned = role == StateRole::param ? param_part(bucket) : memory.of(role);
  return owned.rows(range.first - buckets_[bucket].owned().first, range.count);
}

Tensor ShardedUnit::owned_part(Tensor memory, std::size_t bucket) const {
  const Range range = buckets_[bucket].owned();
  return memory.num_elements() == range.count ? memory : part_of(memory, range);
}

std::vector<StateBuffer> ShardedUnit::state_buffers() const {
  std::vector<StateBuffer> buffers;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Range whole = buckets_[b].whole(), owned = buckets_[b].owned();
    buffers.push_back({StateRole::param, b, options_.dtype, options_.shards_parameters() ? owned : whole});
    if (!buckets_[b].trains) continue;
    buffers.push_back({StateRole::grad, b, options_.grad_dtype, options_.shards_gradients() ? owned : whole});
    if (options_.has_master()) buffers.push_back({StateRole::master, b, options_.master_dtype(), owned});
    for (const StateRole moment : {StateRole::m, StateRole::v})
      buffers.push_back({moment, b, options_.moments_dtype, owned});
  }
  return buffers;
}

void ShardedUnit::bind(const std::function<Tensor(const StateBuffer&)>& memory_of) {
  for (const StateBuffer& buffer : state_buffers()) memory_[buffer.bucket].of(buffer.role) = memory_of(buffer);
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
  for (const std::size_t b : trained_)
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
  for (const std::size_t b : trained_) {
    if (options_.stores_remainders)
      ops.fill(memory_[b].master, 0.0);
    else
      ops.copy(memory_[b].master, param_part(b));
  }
}

void ShardedUnit::clear_gradients(Ops& ops) {
  if (!options_.shards_gradients()) return zero_gradients(ops);
  for (const std::size_t b : trained_) ops.fill(grad_part(b), 0.0);
}

void ShardedUnit::zero_gradients(Ops& ops) {
  for (const std::size_t b : trained_)
    for (const Segment& segment : buckets_[b].segments) {
      Param& param = *segment.param;
      param.has_grad = !param.is_overwritten_by_first_matmul;
      if (param.has_grad) ops.fill(param.grad, 0.0);
    }
}

std::vector<Pending> ShardedUnit::gather_parameters(Ops& ops, Mesh& mesh) {
  return gather(ops, mesh, [&](const Bucket& bucket) { return bucket.trains || options_.shards_parameters(); });
}

std::vector<Pending> ShardedUnit::gather_saved(Ops& ops, Mesh& mesh) {
  return gather(ops, mesh, [](const Bucket& bucket) { return bucket.is_saved; });
}

std::vector<Pending> ShardedUnit::gather(Ops& ops, Mesh& mesh, const std::function<bool(const Bucket&)>& is_wanted) {
  ops.publish();
  std::vector<Pending> pending;
  mesh.together([&] {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (is_wanted(buckets_[b]))
        pending.push_back(mesh.comm(buckets_[b].groups.shard).all_gather(params_[b], param_part(b)));
  });
  return pending;
}

std::vector<Pending> ShardedUnit::reduce_gradients(Ops& ops, Mesh& mesh, std::vector<Tensor> converted) {
  if (!converted.empty())
    for (const std::size_t b : trained_) ops.copy(converted[b], grads_[b]);
  ops.publish();
  const std::vector<Tensor>& whole = converted.empty() ? grads_ : converted;
  std::vector<Pending> pending;
  reduced_.assign(buckets_.size(), {});
  mesh.together([&] {
    for (const std::size_t b : trained_) {
      reduced_[b] = owned_part(whole[b], b);
      const Bucket& bucket = buckets_[b];
      const bool is_over_shards =
          options_.reduces_parts || mesh.shape().group_size(bucket.groups.shard, mesh.rank()) > 1;
      Comm& comm = mesh.comm(is_over_shards ? bucket.groups.shard : bucket.groups.replicate);
      pending.push_back(bucket.shard.size > 1 ? comm.reduce_scatter(reduced_[b], whole[b], ReduceOp::sum)
                                              : comm.all_reduce(whole[b], ReduceOp::sum));
    }
  });
  return pending;
}

void ShardedUnit::store_gradients(Ops& ops) {
  for (const std::size_t b : trained_) {
    if (options_.shards_gradients())
      ops.add(grad_part(b), grad_part(b), reduced_[b]);
    else
      ops.copy(grad_part(b), reduced_[b]);
  }
}

std::vector<Pending> ShardedUnit::reduce_parts(Ops& ops, Mesh& mesh, const std::vector<Tensor>& converted) {
  if (!converted.empty())
    for (const std::size_t b : trained_) ops.copy(converted[b], grad_part(b));
  ops.publish();
  std::vector<Pending> pending;
  for (const std::size_t b : trained_) {
    Comm& comm = mesh.comm(buckets_[b].groups.replicate);
    pending.push_back(comm.all_reduce(converted.empty() ? grad_part(b) : converted[b], ReduceOp::sum));
  }
  if (converted.empty()) return pending;
  for (Pending& each : pending) each.wait();
  for (const std::size_t b : trained_) ops.copy(grad_part(b), converted[b]);
  return {};
}

std::vector<Pending> ShardedUnit::sum_over(std::optional<Group> GradientGroups::*group, Ops& ops, Mesh& mesh) {
  ops.publish();
  std::vector<Pending> pending;
  for (const std::size_t b : trained_)
    if (const std::optional<Group>& of_bucket = buckets_[b].groups.*group)
      pending.push_back(mesh.comm(*of_bucket).all_reduce(grad_part(b), ReduceOp::sum));
  return pending;
}

std::vector<Pending> ShardedUnit::sum_replicas(Ops& ops, Mesh& mesh) {
  return sum_over(&GradientGroups::partial, ops, mesh);
}

std::vector<Pending> ShardedUnit::sum_tied(Ops& ops, Mesh& mesh) { return sum_over(&GradientGroups::tied, ops, mesh); }

void ShardedUnit::add_squares(Ops& ops, Tensor sum) const {
  if (!options_.is_first_copy) return;
  for (const std::size_t b : trained_) {
    if (!buckets_[b].is_first_copy) continue;
    const Range mine = buckets_[b].owned();
    for (const Segment& segment : buckets_[b].segments) {
      const Range part = overlap(segment, mine);
      if (segment.param->is_first_copy && part.count > 0)
        ops.sum_of_squares(part_of(grad_part(b), {part.first - mine.first, part.count}), sum);
    }
  }
}

void ShardedUnit::update(Ops& ops, const AdamWOptions& adamw, Tensor scalars) {
  for (const std::size_t b : trained_) {
    const Range mine = buckets_[b].owned();
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
                 .noise = rounding_noise(*segment.param, {part.first - segment.offset, part.count}, adamw)});
    }
  }
}

}  // namespace echelon
