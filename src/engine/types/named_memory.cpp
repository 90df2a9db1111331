#include "engine/types/named_memory.h"

#include "base/error.h"
#include "executor/scalars.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::array batch_axes = {TypeAxis::dp_replicate, TypeAxis::dp_shard, TypeAxis::cp, TypeAxis::cp_heads};
constexpr std::array tensor_axes = {TypeAxis::tp, TypeAxis::kv_replica};

void set(LayoutType& type, std::span<const TypeAxis> axes, AxisLayout layout) {
  for (const TypeAxis axis : axes) type[axis] = layout;
}

/// Ranges of keys, int32 [microbatches, windows, blocks, B, queries]: for each block of keys those in it. Ranks that
/// exchange heads have the same queries.
void name_ranges(const Tensor& ranges, const LayerOptions& options, LayoutType type, TypedMemory& memory) {
  const RankTokens* tokens = options.tokens.get();
  const std::int64_t of_block = tokens == nullptr ? options.num_tokens()
                                                  : options.num_sequences * tokens->blocks.num_query_rows(),
                     num_blocks = tokens == nullptr ? 1 : tokens->blocks.num_blocks();
  type[TypeAxis::cp_heads] = replicated_layout;
  for (std::int64_t first = 0, block = 0; first < ranges.num_elements(); first += of_block, ++block) {
    if (tokens != nullptr) type[TypeAxis::cp].distance = tokens->distance_of(static_cast<int>(block % num_blocks));
    memory.name(ranges.rows(first, of_block), {.name = "the ranges of keys", .type = type, .is_of_host = true});
  }
}

/// The order of gathered rows: that of a group of ranks, or of all.
void name_orders(const LayerOptions& options, const std::array<Tensor, 2>& orders, LayoutType type,
                 TypedMemory& memory) {
  if (options.tokens->blocks.num_blocks() == 1) type[TypeAxis::cp] = replicated_layout;
  type[TypeAxis::cp_heads] = replicated_layout;
  const auto& [by_position, by_rank] = orders;
  memory.name(by_rank, {.name = "the order of rows by rank", .type = type, .is_of_host = true});
  const bool exchanges_heads = options.tokens->exchange.head_ranks > 1;
  type[exchanges_heads ? TypeAxis::cp_heads : TypeAxis::cp].order = RowOrder::by_rank;  // of what it takes
  memory.name(by_position, {.name = "the order of rows by position", .type = type, .is_of_host = true});
}

void name_router(RankRun& run, TypedMemory& memory) {
  const ModelPart& part = run.model().part();
  const Sizes counts = part.exchange_counts_sizes();
  if (counts.num_dims() > 0)
    memory.name(run.memory().tensor(ProgramKind::training, {BufferRole::exchange_counts}, DType::float64, counts),
                {.name = "the rounds of exchanges", .type = everywhere(TensorPlacement::partial), .is_of_host = true});
  const auto name = [&](BufferRole role, DType dtype, const Sizes& sizes, std::string words, bool is_addend) {
    if (sizes.num_dims() == 0) return;
    const Tensor x = run.memory().tensor(ProgramKind::training, {role}, dtype, sizes);
    memory.name(x, {.name = std::move(words), .type = {}, .is_addend = is_addend, .is_of_host = true});
    if (!is_addend) memory.write(x, {.type = {}});
  };
  name(BufferRole::router_sums, DType::float64, part.router_sums_sizes(), "the loads of experts", true);
  name(BufferRole::router_loads, DType::float64, part.router_loads_sizes(), "the loads of the step before", false);
  name(BufferRole::router_bias, DType::float32, part.router_bias_sizes(), "the bias of the choice", false);
}

}  // namespace

LayoutType boundary_type(const RunConfig& config) {
  LayoutType type;
  set(type, batch_axes, sharded_rows);
  set(type, tensor_axes, config.parallelism.sequence_parallel ? sharded_rows : replicated_layout);
  type[TypeAxis::pp] = own_layout;
  return type;
}

void name_scalars(RankRun& run, const RunConfig& config, TypedMemory& memory) {
  LayoutType batch, count;
  set(batch, batch_axes, sharded_rows);
  set(count, batch_axes, partial_layout);
  const auto buffer = [&](BufferRole role, DType dtype, std::int64_t size) {
    return run.memory().tensor(ProgramKind::training, {role}, dtype, {size});
  };
  const ModelPart& part = run.model().part();
  const auto of_batch = [&](BufferRole role) {
    return buffer(role, DType::int32, config.num_microbatches() * part.batch_size(role));
  };
  memory.name(of_batch(BufferRole::tokens), {.name = "the tokens", .type = batch, .is_of_host = true});
  memory.name(of_batch(BufferRole::targets), {.name = "the targets", .type = batch, .is_of_host = true});
  for (const BufferRole role : {BufferRole::key_begin, BufferRole::key_end})
    if (part.batch_size(role) > 0) name_ranges(of_batch(role), part.options, batch, memory);
  if (part.batch_size(BufferRole::rows_by_rank) > 0)
    name_orders(part.options, {of_batch(BufferRole::rows_by_position), of_batch(BufferRole::rows_by_rank)}, batch,
                memory);
  if (part.batch_size(BufferRole::positions) > 0)
    memory.name(of_batch(BufferRole::positions), {.name = "the positions", .type = batch, .is_of_host = true});
  if (part.batch_size(BufferRole::places) > 0)
    memory.name(of_batch(BufferRole::places), {.name = "which rows are tokens", .type = batch, .is_of_host = true});
  name_router(run, memory);
  const Tensor scalars = buffer(BufferRole::scalars, DType::float64, num_scalars);
  const LayoutType zero = everywhere(TensorPlacement::zero), given = {};
  const auto name = [&](std::int64_t first, std::int64_t size, std::string words, const LayoutType& type,
                        bool is_addend = false) {
    memory.name(scalars.rows(first, size),
                {.name = std::move(words), .type = type, .is_addend = is_addend, .is_of_host = true});
  };
  name(count_scalar, num_count_scalars, "the number of targets", count);
  name(report_scalar, 1, "the loss", zero, true);
  name(report_scalar + 1, 1, "the number of ranks that stop", everywhere(TensorPlacement::partial));
  name(report_scalar + 2, 1, "the number of ranks that have saved", everywhere(TensorPlacement::partial));
  name(norm_scalar, 1, "the norm of gradients", given);
  name(clip_scalar, num_clip_scalars, "the squares of all gradients", zero);
  name(uncounted_loss_scalar, 1, "the loss that another rank counts", zero);
  name(loss_scale_scalar, 1, "the loss scale", given);
  name(adamw_scalar, num_adamw_scalars - 1, "what the optimizer is given", given);
  name(grad_scale_scalar, 1, "the factor of gradients", given);
}

NamedParams::NamedParams(RankRun& run, const RankAxes& axes, TypedMemory& memory)
    : run_(run), axes_(axes), memory_(memory) {
  for (ShardedUnit* unit : run.model().part().units()) add(*unit);
  watch(ProgramKind::training);
}

void NamedParams::add(ShardedUnit& unit) {
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const BucketMemory& flat = unit.memory(b);
    // What keeps this type is padding.
    for (const Tensor& zeros : {flat.param, flat.grad})
      if (zeros.exists()) memory_.write(zeros, {.type = everywhere(TensorPlacement::zero)});
    for (const Segment& segment : unit.buckets()[b].segments) add(unit, b, segment);
  }
}

// Between steps, a sharded parameter is this rank's part; a whole one has been gathered from such parts.
void NamedParams::add(const ShardedUnit& unit, std::size_t bucket, const Segment& segment) {
  const Param& param = *segment.param;
  const BucketMemory& flat = unit.memory(bucket);
  const Range owned = unit.buckets()[bucket].owned(), part = overlap(segment, owned),
              in_part = {part.first - owned.first, part.count};
  const LayoutType type = type_of(param);
  LayoutType of_part = type;
  // Else every rank of the group updates all. Of a dense one with a single rank, the axes have no meaning.
  const std::vector<TypeAxis> shard_axes = axes_.of(param.groups.shard);
  const bool is_divided = unit.options().level > 0 && !shard_axes.empty();
  if (is_divided) set(of_part, shard_axes, sharded_rows);
  const auto owned_of = [&](const Tensor& x) {
    return part.count > 0 && x.exists() ? x.rows(in_part.first, in_part.count) : Tensor();
  };
  const auto name = [&](const Tensor& x, const NamedMemory& named) {
    if (x.exists()) memory_.name(x, named);
  };

  const bool is_cut = unit.options().shards_parameters();
  const Tensor kept = is_cut ? owned_of(flat.param) : param.value, own = unit.param_part(bucket);
  const int gathered =
      is_cut || !is_divided ? -1 : memory_.add_gathered({shard_axes, own.data, own.data + own.num_bytes()});
  name(kept, {.name = param.name, .type = is_cut ? of_part : type});
  if (kept.exists()) memory_.write(kept, {.type = is_cut ? of_part : type, .gathered = gathered});
  const std::string gradient = "the gradient of " + param.name;
  if (unit.options().shards_gradients())
    name(owned_of(flat.grad), {.name = gradient, .type = of_part, .is_gradient = true});
  else if (param.trains)
    name(param.grad, {.name = gradient, .type = type, .is_gradient = true});
  for (const Tensor& state : {flat.master, flat.m, flat.v}) {
    name(owned_of(state), {.name = "the optimizer's state of " + param.name, .type = of_part});
    if (owned_of(state).exists()) memory_.write(owned_of(state), {.type = of_part});
  }
  entries_.push_back({&param, kept, is_cut ? of_part : type, owned_of(unit.grad_part(bucket))});
}

void NamedParams::watch(ProgramKind kind) {
  kind_ = kind;
  opening_.clear();
  for (const PlannedBuffer& buffer : run_.blueprint().memory(kind).buffers())
    if (buffer.first_action != always && buffer.num_bytes > 0) opening_[buffer.first_action].push_back(&buffer);
}

void NamedParams::begins(const Action& action, ActionPart part) {
  if (part != ActionPart::perform) return;
  // A buffer starts its lifetime unwritten, whatever the memory held before.
  for (const PlannedBuffer* buffer : opening_[action.id])
    memory_.forget(
        run_.memory().arena().tensor(buffer->offset, DType::float64, {buffer->num_bytes / size_of(DType::float64)}));
  if (action.unit < 0) return;
  const bool is_gather = action.kind == ActionKind::gather_parameters,
             is_open = action.kind == ActionKind::open_gradients;
  const bool is_release = action.kind == ActionKind::release_parameters;
  const ShardedUnit& unit = run_.model().part().unit(action);
  const ShardOptions& options = unit.options();
  ProgramBuffers buffers(run_.memory(), kind_);
  if (is_gather && options.shards_parameters()) {
    gathered_[&unit] = whole_buffers(buffers, {BufferRole::gathered_param, action.id}, unit, options.dtype);
    open(unit, gathered_[&unit], "", false);
  }
  if (is_open) {
    opened_[&unit] = whole_buffers(buffers, {BufferRole::unreduced_grad, action.id}, unit, options.grad_dtype);
    open(unit, opened_[&unit], "the gradient of ", true);
  }
  if (is_release) close(gathered_[&unit]);
  // Gradients that are converted are read for the last time then, others when they are stored.
  if (action.kind == (options.converts_gradients() ? ActionKind::reduce_gradients : ActionKind::store_gradients))
    last_read_ = &unit;
}

void NamedParams::ends() {
  if (last_read_ != nullptr) close(opened_[last_read_]);
  last_read_ = nullptr;
}

void NamedParams::open(const ShardedUnit& unit, const std::vector<Tensor>& buffers, std::string_view words,
                       bool is_gradient) {
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].exists()) continue;
    for (const Segment& segment : unit.buckets()[b].segments)
      memory_.name(buffers[b].rows(segment.offset, segment.count), {.name = std::string(words) + segment.param->name,
                                                                    .type = type_of(*segment.param),
                                                                    .is_gradient = is_gradient});
  }
}

void NamedParams::close(const std::vector<Tensor>& buffers) {
  for (const Tensor& buffer : buffers)
    if (buffer.exists()) memory_.forget(buffer);
}

LayoutType NamedParams::type_of(const Param& param) const {
  LayoutType type;
  type[TypeAxis::pp] = param.groups.tied ? replicated_layout : own_layout;
  const int dim = param.slice.dim();
  const ExpertRanks& experts = axes_.experts();
  if (experts.num_ranks > 1 && param.groups.shard == expert_holders_group(experts.num_ranks)) {
    const AxisLayout own = {TensorPlacement::experts,
                            experts.divide_features ? block_from(param.local_sizes(), dim) : outermost};
    for (const TypeAxis axis : axes_.all())
      if (axes_.divides_experts(axis)) type[axis] = own;
    return type;
  }
  if (dim < 0) return type;
  const AxisLayout cut =
      dim == 0 ? sharded_rows : AxisLayout{TensorPlacement::sharded, block_from(param.local_sizes(), dim)};
  type[TypeAxis::tp] = cut;
  // Ranks that hold the same kv head hold the same slices: fewer different ones than ranks.
  const bool is_shared_by_kv_replicas =
      param.local_sizes()[dim] * axes_.degree(TypeAxis::tp) == param.global_sizes()[dim];
  type[TypeAxis::kv_replica] = is_shared_by_kv_replicas ? replicated_layout : cut;
  return type;
}

void NamedParams::require_counted() const {
  for (const Entry& entry : entries_) {
    if (!entry.owned_gradient.exists()) continue;
    const TypedPiece* gradient = memory_.piece_at(entry.owned_gradient);
    if (gradient == nullptr) continue;
    const bool counts_here = std::all_of(axes_.all().begin(), axes_.all().end(), [&](TypeAxis axis) {
      if (gradient->type[axis].placement == TensorPlacement::experts) return axes_.expert_holders().index == 0;
      return gradient->type[axis] != replicated_layout || axes_.index(axis) == 0;
    });
    if (counts_here && !gradient->is_counted)
      throw Failure(fmt::format("clip: the gradient of {} is not in the norm of any rank", entry.param->name));
  }
}

void NamedParams::require_as_before() const {
  for (const Entry& entry : entries_) {
    if (!entry.kept.exists()) continue;
    std::optional<TypedPiece> differing;
    const auto piece = memory_.find(entry.kept, differing);
    for (const TypeAxis axis : axes_.all()) {
      const bool is_as_before =
          piece && piece->type[axis] == entry.type[axis] && (!differing || differing->type[axis] == entry.type[axis]);
      if (is_as_before) continue;
      const AxisLayout now = piece && piece->type[axis] != entry.type[axis] ? piece->type[axis]
                             : differing                                    ? differing->type[axis]
                                                                            : AxisLayout();
      throw Failure(fmt::format("after the step {} is {} over {}, but the next step takes it for {}", entry.param->name,
                                describe(now, entry.kept), axes_.name(axis), describe(entry.type[axis], entry.kept)));
    }
  }
}

}  // namespace echelon
