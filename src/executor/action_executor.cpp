#include "executor/action_executor.h"

#include "executor/boundaries.h"
#include "executor/unit_state.h"
#include "spec/groups.h"

namespace echelon {
namespace {

std::vector<Pending> one(Pending pending) {
  std::vector<Pending> list;
  list.push_back(std::move(pending));
  return list;
}

RegionUse use_of(const StashSlot& slot) { return {.num_bytes = slot.peak_bytes(), .rows = slot.rows()}; }

}  // namespace

ActionExecutor::ActionExecutor(const RunConfig& config, const ExecutorParts& parts)
    : config_(config), model_(parts.model), ops_(parts.ops), mesh_(parts.mesh), repeated_(parts.repeated) {}

void ActionExecutor::start(Buffers& buffers, StepValues& values) {
  buffers_ = &buffers;
  values_ = &values;
  const MixtureSpec& mixture = model_.options.model.mixture;
  expert_traffic_.assign(static_cast<std::size_t>(mixture.num_layers_of(model_.options.model.num_hidden_layers)), {});
}

std::vector<Pending> ActionExecutor::perform(const Action& action) {
  const auto& [kind, stage, m, unit_index, id, after] = action;
  switch (kind) {
    case ActionKind::load_batch: load_batch(); break;
    case ActionKind::take_snapshot: take_snapshot(action); break;
    case ActionKind::clear_gradients:
      for (ShardedUnit* each : model_.units()) each->clear_gradients(ops_);
      break;
    case ActionKind::count_tokens: return one(all_reduce(data_group, scalars(count_scalar, num_count_scalars)));
    case ActionKind::receive_forward: return one(receive(action, stage_input(stage, m)));
    case ActionKind::forward: forward(action); break;
    case ActionKind::send_forward: return one(send(action, stage_output(model_.rank_of_stage, stage, m)));
    case ActionKind::receive_backward: return one(receive(action, output_gradient(stage, m)));
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: backward(action); break;
    case ActionKind::send_backward: return one(send(action, input_gradient(model_.rank_of_stage, stage, m)));
    case ActionKind::open_gradients: open_gradients(action); break;
    case ActionKind::reduce_gradients: return unit(action).reduce_gradients(ops_, mesh_, converted(action));
    case ActionKind::store_gradients: unit(action).store_gradients(ops_); break;
    case ActionKind::reduce_parts: return unit(action).reduce_parts(ops_, mesh_, converted(action));
    case ActionKind::sum_replicas: return unit(action).sum_replicas(ops_, mesh_);
    case ActionKind::sum_tied: return unit(action).sum_tied(ops_, mesh_);
    case ActionKind::clip: clip(); break;
    case ActionKind::update: unit(action).update(ops_, values_->adamw, scalars(adamw_scalar, num_adamw_scalars)); break;
    case ActionKind::gather_parameters: return gather_parameters(action);
    case ActionKind::release_parameters: unit(action).release_parameters(); break;
    case ActionKind::report: report(); break;
  }
  return {};
}

void ActionExecutor::load_batch() {
  const HostBatch& batch = values_->batch;
  const auto upload = [&](BufferRole role, const std::int32_t* values) {
    if (model_.batch_size(role) > 0) ops_.upload(of_batch(role), values);
  };
  upload(BufferRole::tokens, batch.tokens);
  upload(BufferRole::targets, batch.targets);
  upload(BufferRole::key_begin, batch.key_begin);
  upload(BufferRole::key_end, batch.key_end);
  upload(BufferRole::rows_by_position, batch.rows_by_position);
  upload(BufferRole::rows_by_rank, batch.rows_by_rank);
  upload(BufferRole::positions, batch.positions);
  upload(BufferRole::places, batch.places);
  if (has_router_sums()) ops_.fill(router().sums, 0.0);
  ops_.upload(scalars(0, num_scalars), &values_->given);
}

// Into host memory: that of the rank on CPUs, and else of its own.
void ActionExecutor::take_snapshot(const Action& action) {
  if (copied_.empty()) {
    const std::vector<std::int64_t> bytes = snapshot_bytes_of_units(model_, config_.checkpoint.snapshot_bytes);
    const std::vector<ShardedUnit*> units = model_.units();
    for (std::size_t i = 0; i < units.size(); ++i)
      copied_[units[i]] = bytes[i] > 0 ? snapshot_runs(*units[i]) : std::vector<SnapshotRun>();
  }
  const ShardedUnit& saved = unit(action);
  const std::vector<SnapshotRun>& runs = copied_.at(&saved);
  Stack region = buffers_->region({BufferRole::snapshot, action.unit, action.stage});
  for (const SnapshotRun& run : runs) {
    const Tensor copy = region.take(run.dtype, {run.range.count}),
                 values = saved.state_in(run.role, run.bucket, run.range);
    if (config_.training.device == DeviceChoice::cuda)
      ops_.download(copy.data, values);
    else
      ops_.copy(copy, values);
  }
  if (!runs.empty())
    buffers_->note_use({BufferRole::snapshot, action.unit, action.stage}, {.num_bytes = region.used_bytes()});
}

void ActionExecutor::forward(const Action& action) {
  const auto& [kind, stage, m, unit_index, id, after] = action;
  const StagePart& part = model_.stage(stage);
  Stack workspace = buffers_->region({BufferRole::workspace, id});
  Context context = {ops_, mesh_, workspace, microbatch(m), repeated_};
  const BufferKey saved = {BufferRole::stash, m, stage}, saved_for_input = {BufferRole::input_stash, m, stage};
  Stash& stash = stashes_[{stage, m}];
  if (unit_index <= 0)  // of the whole stage, or its first unit
    stash = Stash(buffers_->region(saved), buffers_->region(saved_for_input),
                  buffers_->region({BufferRole::gradient_stash, m, stage}));
  const Tensor x = part.is_first() ? Tensor() : boundary(stage_input(stage, m));
  const Tensor y = part.is_last() ? Tensor() : boundary(stage_output(model_.rank_of_stage, stage, m));
  part.stage->forward(context, unit_index, x, y, stash);
  buffers_->note_use(saved, use_of(stash.slot()));
  buffers_->note_use(saved_for_input, use_of(stash.input_slot()));
  buffers_->note_use({BufferRole::workspace, id}, {.num_bytes = workspace.peak_bytes()});
}

void ActionExecutor::backward(const Action& action) {
  const auto& [kind, stage, m, unit_index, id, after] = action;
  StagePart& part = model_.stage(stage);
  Stack workspace = buffers_->region({BufferRole::workspace, id});
  Context context = {ops_, mesh_, workspace, microbatch(m), repeated_, /*is_backward=*/true};
  Stash& stash = stashes_[{stage, m}];
  if (kind == ActionKind::backward) part.stage->backward(context, unit_index, gradients_of(stage, m), stash);
  if (kind == ActionKind::backward_input) {
    part.stage->backward_input(context, unit_index, gradients_of(stage, m), stash);
    buffers_->note_use({BufferRole::gradient_stash, m, stage}, use_of(stash.gradient_slot()));
  }
  if (kind == ActionKind::backward_weight) part.stage->backward_weight(context, unit_index, stash);
  buffers_->note_use({BufferRole::workspace, id}, {.num_bytes = workspace.peak_bytes()});
}

Stage::Gradients ActionExecutor::gradients_of(int stage, int microbatch) {
  const StagePart& part = model_.stage(stage);
  const int between = part.stage->num_units() - 1;
  return {.dy = part.is_last() ? Tensor() : boundary(output_gradient(stage, microbatch)),
          .dx = part.is_first() ? Tensor() : boundary(input_gradient(model_.rank_of_stage, stage, microbatch)),
          .flow = {between >= 1 ? boundary({BufferRole::flow_0, microbatch, stage}) : Tensor(),
                   between >= 2 ? boundary({BufferRole::flow_1, microbatch, stage}) : Tensor()}};
}

// From ZeRO-2 on, the gradients of one microbatch have whole buffers of their own. Under ZeRO-3 so have parameters,
// from a gather to its release.
void ActionExecutor::open_gradients(const Action& action) {
  ShardedUnit& opened = unit(action);
  opened.bind_gradients(
      whole_buffers(*buffers_, {BufferRole::unreduced_grad, action.id}, opened, opened.options().grad_dtype));
  opened.zero_gradients(ops_);
}

std::vector<Pending> ActionExecutor::gather_parameters(const Action& action) {
  ShardedUnit& gathered = unit(action);
  const ShardOptions& options = gathered.options();
  if (options.shards_parameters())
    gathered.bind_parameters(
        whole_buffers(*buffers_, {BufferRole::gathered_param, action.id}, gathered, options.dtype));
  return gathered.gather_parameters(ops_, mesh_);
}

// For gradients that are reduced in another dtype than their own; else none.
std::vector<Tensor> ActionExecutor::converted(const Action& action) {
  const ShardedUnit& reduced = unit(action);
  if (!reduced.options().converts_gradients()) return {};
  const BufferKey key = {BufferRole::converted_grad, action.id};
  const DType dtype = reduced.options().reduce_dtype;
  return action.kind == ActionKind::reduce_parts ? owned_buffers(*buffers_, key, reduced, dtype)
                                                 : whole_buffers(*buffers_, key, reduced, dtype);
}

// Gradients are multiplied by the loss scale and divided by the expected targets of the global batch. Clipping removes
// the scale and corrects them once by the count that was summed over all ranks.
void ActionExecutor::clip() {
  const Tensor squares = scalars(clip_scalar, num_clip_scalars), num_targets = scalars(count_scalar, num_count_scalars);
  for (const ShardedUnit* each : model_.units()) each->add_squares(ops_, squares);
  all_reduce(step_group, squares).wait();
  ops_.gradient_factor({.sum_of_squares = squares,
                        .num_targets = num_targets,
                        .norm = scalars(norm_scalar, 1),
                        .factor = scalars(grad_scale_scalar, 1),
                        .loss_scale = loss_scale(),
                        .expected_targets = expected_targets(),
                        .max_norm = values_->max_norm});
}

void ActionExecutor::report() {
  all_reduce(step_group, scalars(report_scalar, num_report_scalars)).wait();
  if (has_router_sums()) balance_experts();
  if (values_->trains) sum_exchanges();
  ops_.download(&values_->read, scalars(0, num_read_scalars));
}

void ActionExecutor::balance_experts() {
  const RouterState of = router();
  all_reduce(step_group, of.sums).wait();
  const bool moves_bias = of.bias.exists() && config_.moe.bias_update_rate != 0;
  if (of.loads.exists() || moves_bias)
    ops_.balance_experts({.counts = of.sums,
                          .factor = scalars(grad_scale_scalar, 1),
                          .loads = of.loads,
                          .bias = moves_bias ? of.bias : Tensor(),
                          .rate = config_.moe.bias_update_rate});
  const auto read = [&](auto& values, const Tensor& x) {
    values.resize(x.exists() ? static_cast<std::size_t>(x.num_elements()) : 0);
    if (x.exists()) ops_.download(values.data(), x);
  };
  read(values_->router_sums, of.sums);
  read(values_->router_bias, of.bias);
}

void ActionExecutor::sum_exchanges() {
  const Sizes sizes = model_.exchange_counts_sizes();
  if (sizes.num_dims() == 0) return;
  std::vector<double>& counts = values_->exchange_counts;
  counts.clear();
  for (const ExpertTraffic& of_layer : expert_traffic_)
    for (const std::int64_t count : {of_layer.num_exchanges, of_layer.num_rounds, of_layer.rows_again})
      counts.push_back(static_cast<double>(count));
  const Tensor sums = buffers_->tensor({BufferRole::exchange_counts}, DType::float64, sizes);
  ops_.upload(sums, counts.data());
  all_reduce(step_group, sums).wait();
  ops_.download(counts.data(), sums);
}

RouterState ActionExecutor::router() {
  const auto tensor = [&](BufferRole role, DType dtype, const Sizes& sizes) {
    return sizes.num_dims() == 0 ? Tensor() : buffers_->tensor({role}, dtype, sizes);
  };
  RouterState state;
  if (has_router_sums()) state.sums = tensor(BufferRole::router_sums, DType::float64, model_.router_sums_sizes());
  state.loads = tensor(BufferRole::router_loads, DType::float64, model_.router_loads_sizes());
  state.bias = tensor(BufferRole::router_bias, DType::float32, model_.router_bias_sizes());
  state.num_targets = scalars(count_scalar, num_count_scalars);
  return state;
}

Pending ActionExecutor::all_reduce(const Group& group, Tensor x) {
  ops_.publish();
  return mesh_.comm(group).all_reduce(x, ReduceOp::sum);
}

Pending ActionExecutor::send(const Action& action, BufferKey from) {
  ops_.publish();
  return mesh_.comm(pipeline_group).send(boundary(from), model_.peer_of(action));
}

Pending ActionExecutor::receive(const Action& action, BufferKey into) {
  ops_.publish();  // operations still enqueued may read what the buffer held before
  return mesh_.comm(pipeline_group).receive(boundary(into), model_.peer_of(action));
}

Tensor ActionExecutor::boundary(BufferKey key) {
  return buffers_->tensor(key, model_.options.dtype, model_.boundary_sizes());
}

Tensor ActionExecutor::scalars(std::int64_t first, std::int64_t count) {
  return buffers_->tensor({BufferRole::scalars}, DType::float64, {num_scalars}).rows(first, count);
}

Tensor ActionExecutor::loss_scale() { return values_->has_loss_scale ? scalars(loss_scale_scalar, 1) : Tensor(); }

double ActionExecutor::expected_targets() const {
  return static_cast<double>(config_.training.global_batch_size * config_.training.seq_len);
}

Tensor ActionExecutor::of_batch(BufferRole role) {
  return buffers_->tensor({role}, DType::int32, {config_.num_microbatches() * model_.batch_size(role)});
}

std::span<const KeyTransfers> ActionExecutor::key_transfers(int microbatch) const {
  if (values_->batch.key_transfers == nullptr) return {};
  const std::size_t count = model_.options.windows.size() * static_cast<std::size_t>(model_.options.num_sequences);
  return {values_->batch.key_transfers + static_cast<std::size_t>(microbatch) * count, count};
}

std::span<const MaskShape> ActionExecutor::mask_shapes(int microbatch) const {
  if (values_->batch.mask_shapes == nullptr) return {};
  const auto count = static_cast<std::size_t>(model_.num_key_ranges());
  return {values_->batch.mask_shapes + static_cast<std::size_t>(microbatch) * count, count};
}

Microbatch ActionExecutor::microbatch(int index) {
  const auto rows = [&](BufferRole role) {
    const std::int64_t size = model_.batch_size(role);
    return size == 0 ? Tensor() : of_batch(role).rows(index * size, size);
  };
  return {.tokens = rows(BufferRole::tokens),
          .targets = rows(BufferRole::targets),
          .key_begin = rows(BufferRole::key_begin),
          .key_end = rows(BufferRole::key_end),
          .mask_shapes = mask_shapes(index),
          .rows_by_position = rows(BufferRole::rows_by_position),
          .rows_by_rank = rows(BufferRole::rows_by_rank),
          .positions = rows(BufferRole::positions),
          .places = rows(BufferRole::places),
          .key_transfers = key_transfers(index),
          .loss_sum = scalars(model_.options.tp_rank == 0 ? report_scalar : uncounted_loss_scalar, 1),
          .gradient_scale = 1 / expected_targets(),
          .loss_scale = loss_scale(),
          .router = router(),
          .expert_traffic = expert_traffic_,
          .expert_loads = values_->expert_loads,
          .needs_gradient = values_->trains};
}

namespace {

template <class Count>
std::vector<Tensor> buffers_of(Buffers& buffers, BufferKey key, const ShardedUnit& unit, DType dtype, Count&& count) {
  std::vector<Tensor> tensors;
  for (const Bucket& bucket : unit.buckets()) {
    key.bucket = static_cast<int>(tensors.size());
    tensors.push_back(!bucket.trains && key.role != BufferRole::gathered_param
                          ? Tensor()
                          : buffers.tensor(key, dtype, {count(bucket)}));
  }
  return tensors;
}

}  // namespace

std::vector<Tensor> whole_buffers(Buffers& buffers, BufferKey key, const ShardedUnit& unit, DType dtype) {
  return buffers_of(buffers, key, unit, dtype, [](const Bucket& bucket) { return bucket.num_elements; });
}

std::vector<Tensor> owned_buffers(Buffers& buffers, BufferKey key, const ShardedUnit& unit, DType dtype) {
  return buffers_of(buffers, key, unit, dtype, [](const Bucket& bucket) { return bucket.owned().count; });
}

}  // namespace echelon
