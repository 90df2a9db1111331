#include "engine/named_memory.h"

#include "base/error.h"
#include "blueprint/scalars.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::array batch_axes = {TypeAxis::dp_replicate, TypeAxis::dp_shard};
constexpr std::array shard_axes = {TypeAxis::dp_shard, TypeAxis::cp};
constexpr std::array tensor_axes = {TypeAxis::tp, TypeAxis::kv_replica};

void set(LayoutType& type, std::span<const TypeAxis> axes, AxisLayout layout) {
  for (const TypeAxis axis : axes) type[axis] = layout;
}

}  // namespace

LayoutType border_type(const RunConfig& config, const RankAxes& /*axes*/) {
  LayoutType type;
  set(type, batch_axes, sharded_rows);
  set(type, tensor_axes, config.parallelism.sequence_parallel ? sharded_rows : replicated_layout);
  type[TypeAxis::pp] = own_layout;
  return type;
}

void name_scalars(RankRun& run, const RunConfig& config, const RankAxes& /*axes*/, TypedMemory& memory) {
  const std::int64_t num_tokens = config.num_microbatches() * config.training.micro_batch_size * config.training.seq_len;
  LayoutType batch, count, loss;
  set(batch, batch_axes, sharded_rows);
  set(count, batch_axes, partial_layout);
  set(loss, batch_axes, partial_layout);
  loss[TypeAxis::pp] = own_layout;
  const auto buffer = [&](BufferRole role, DType dtype, std::int64_t size) { return run.memory().tensor(ProgramKind::training, {role}, dtype, {size}); };
  memory.name(buffer(BufferRole::tokens, DType::int32, num_tokens), {.name = "the tokens", .type = batch, .is_of_host = true});
  memory.name(buffer(BufferRole::targets, DType::int32, num_tokens), {.name = "the targets", .type = batch, .is_of_host = true});
  const Tensor scalars = buffer(BufferRole::scalars, DType::float64, num_scalars);
  memory.name(scalars.rows(loss_scalar, 1), {.name = "the loss", .type = loss, .is_addend = true, .is_of_host = true});
  memory.name(scalars.rows(count_scalar, num_count_scalars), {.name = "the number of targets", .type = count, .is_of_host = true});
  memory.name(scalars.rows(clip_scalar, num_clip_scalars), {.name = "the squares of all gradients", .type = {}, .is_of_host = true});
  memory.name(scalars.rows(report_scalar, num_report_scalars), {.name = "the loss of all ranks", .type = everywhere(Held::partial), .is_of_host = true});
}

NamedParams::NamedParams(RankRun& run, const RankAxes& axes, TypedMemory& memory) : axes_(axes), memory_(memory) {
  ModelPart& part = run.model().part();
  const bool ties_ranks = part.rank_of_stage.front() != part.rank_of_stage.back();
  for (StagePart& stage : part.stages)
    for (std::size_t unit = 0; unit < stage.units.size(); ++unit) add(stage.units[unit], ties_ranks && static_cast<int>(unit) == stage.stage->num_units());
}

void NamedParams::add(ShardedUnit& unit, bool is_shared_by_stages) {
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const BucketMemory& flat = unit.memory(b);
    for (const Tensor& zeros : {flat.param, flat.grad}) memory_.write(zeros, {.type = everywhere(Held::zero)});  // whatever stays so is padding
    const Range owned = unit.owned(unit.buckets()[b]);
    const Tensor own = flat.param.rows(owned.first, owned.count);
    const int gathered = memory_.add_gathered({{shard_axes.begin(), shard_axes.end()}, own.data, own.data + own.num_bytes()});
    for (const Segment& segment : unit.buckets()[b].segments) add(unit, b, segment, type_of(*segment.param, is_shared_by_stages), gathered);
  }
}

void NamedParams::add(const ShardedUnit& unit, std::size_t bucket, const Segment& segment, const LayoutType& type, int gathered) {
  const Param& param = *segment.param;
  const BucketMemory& flat = unit.memory(bucket);
  memory_.name(param.value, {.name = param.name, .type = type});
  memory_.name(param.grad, {.name = "the gradient of " + param.name, .type = type, .is_gradient = true});
  memory_.write(param.value, {.type = type, .gathered = gathered});

  const Range owned = unit.owned(unit.buckets()[bucket]), part = overlap(segment, owned);
  entries_.push_back({&param, type, part.count > 0 ? flat.grad.rows(part.first, part.count) : Tensor()});
  LayoutType of_part = type;
  set(of_part, shard_axes, sharded_rows);
  for (const Tensor& state : {flat.master, flat.m, flat.v}) {
    if (!state.exists() || part.count == 0) continue;
    const Tensor mine = state.rows(part.first - owned.first, part.count);
    memory_.name(mine, {.name = "the optimizer's state of " + param.name, .type = of_part});
    memory_.write(mine, {.type = of_part});
  }
}

LayoutType NamedParams::type_of(const Param& param, bool is_shared_by_stages) const {
  LayoutType type;
  type[TypeAxis::pp] = is_shared_by_stages ? replicated_layout : own_layout;
  if (param.split_dim < 0) return type;
  const AxisLayout cut = param.split_dim == 0 ? sharded_rows : AxisLayout{Held::sharded, block_from(param.local_sizes(), param.split_dim)};
  type[TypeAxis::tp] = cut;
  // Ranks that hold the same kv head hold the same slices: fewer different ones than ranks.
  const bool is_shared_by_kv_replicas = param.split_count * axes_.degree(TypeAxis::tp) == param.global_sizes[param.split_dim];
  type[TypeAxis::kv_replica] = is_shared_by_kv_replicas ? replicated_layout : cut;
  return type;
}

void NamedParams::require_counted() const {
  for (const Entry& entry : entries_) {
    if (!entry.owned_gradient.exists()) continue;
    const TypedPiece* gradient = memory_.piece_at(entry.owned_gradient);
    if (gradient == nullptr) continue;
    const bool counts_here =
        std::all_of(axes_.all().begin(), axes_.all().end(), [&](TypeAxis axis) { return gradient->type[axis] != replicated_layout || axes_.index(axis) == 0; });
    if (counts_here && !gradient->is_counted) throw Failure(fmt::format("clip: the gradient of {} is not in the norm of any rank", entry.param->name));
  }
}

void NamedParams::require_as_before() const {
  for (const Entry& entry : entries_) {
    std::optional<TypedPiece> differing;
    const auto piece = memory_.find(entry.param->value, differing);
    for (const TypeAxis axis : axes_.all()) {
      const bool is_as_before = piece && piece->type[axis] == entry.type[axis] && (!differing || differing->type[axis] == entry.type[axis]);
      if (is_as_before) continue;
      const AxisLayout now = piece && piece->type[axis] != entry.type[axis] ? piece->type[axis] : differing ? differing->type[axis] : AxisLayout();
      throw Failure(fmt::format("after the step {} is {} over {}, but the next step takes it for {}", entry.param->name, describe(now, entry.param->value),
                                axes_.name(axis), describe(entry.type[axis], entry.param->value)));
    }
  }
}

}  // namespace echelon
