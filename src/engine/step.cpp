#include "engine/step.h"

#include "base/error.h"
#include "blueprint/boundaries.h"
#include "blueprint/scalars.h"
#include "spec/groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

std::vector<Pending> one(Pending pending) {
  std::vector<Pending> list;
  list.push_back(std::move(pending));
  return list;
}

}  // namespace

Step::Step(const Blueprint& blueprint, const RankBlueprint& rank, const RankParts& parts)
    : config_(blueprint.config()),
      rank_(rank),
      memory_(parts.memory),
      model_(parts.model),
      ops_(parts.ops),
      mesh_(parts.mesh),
      recorder_(parts.recorder) {}

StepResult Step::run(ProgramKind kind, const StepInput& input) {
  kind_ = kind;
  input_ = input;
  result_ = {};
  const Program& program = rank_.program(kind);
  pending_.clear();
  pending_.resize(program.size());
  const bool is_observed = observer_ || action_observer_ != nullptr;
  if (kind == ProgramKind::training && recorder_ != nullptr && !is_observed)
    replay(program);
  else
    perform_all(program);
  return result_;
}

void Step::perform_all(std::span<const Action> actions) {
  const Program& program = rank_.program(kind_);
  for (const Action& action : actions) {
    try {
      for (const int id : action.after) finish(program[static_cast<std::size_t>(id)]);
      observed(action, ActionPart::perform, [&] { perform(action); });
      mesh_.poll();
    } catch (const PeerAborted&) {
      throw;
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", to_string(action), error.what()), error.status());
    } catch (const std::exception& error) {
      throw Failure(fmt::format("{}: {}", to_string(action), error.what()));
    }
  }
}

// load_batch, the first action, and report, the last, speak with the host. What is between them is the same work in
// every step. The first time it is enqueued as it comes, since whatever is made or timed when it is first needed cannot
// be recorded.
void Step::replay(std::span<const Action> program) {
  const std::span<const Action> between = program.subspan(1, program.size() - 2);
  const Constants now = constants();
  perform_all(program.first(1));
  if (performed_ != now) {
    perform_all(between);
  } else {
    if (recorded_ != now) {
      recorded_.reset();
      record(between, program.back());
      recorded_ = now;
    }
    recorder_->replay();
  }
  performed_ = now;
  perform_all(program.last(1));
}

void Step::record(std::span<const Action> actions, const Action& next) {
  try {
    recorder_->begin();
    perform_all(actions);
    for (const int id : next.after) finish(rank_.program(kind_)[static_cast<std::size_t>(id)]);
    recorder_->end();
  } catch (...) {
    recorder_->abandon();
    throw;
  }
}

Step::Constants Step::constants() const {
  AdamWOptions adamw = input_.adamw;
  adamw.lr = 0;
  adamw.step = 0;
  return {.adamw = adamw, .max_norm = input_.max_norm, .has_loss_scale = input_.loss_scale.has_value()};
}

void Step::finish(const Action& action) {
  std::vector<Pending>& under_way = pending_[static_cast<std::size_t>(action.id)];
  if (under_way.empty()) return;
  observed(action, ActionPart::wait, [&] {
    for (Pending& pending : under_way) pending.wait();
  });
  under_way.clear();
}

template <class F>
void Step::observed(const Action& action, ActionPart part, F&& f) {
  if (action_observer_ == nullptr) return f();
  action_observer_->begins(action, part);
  f();
  action_observer_->ends();
}

void Step::perform(const Action& action) {
  std::vector<Pending>& pending = pending_[static_cast<std::size_t>(action.id)];
  switch (action.kind) {
    case ActionKind::load_batch: return load_batch();
    case ActionKind::clear_gradients:
      for (ShardedUnit* each : model_.part().units()) each->clear_gradients(ops_);
      return;
    case ActionKind::count_tokens:
      pending = one(all_reduce(data_group, scalars(count_scalar, num_count_scalars)));
      return;
    case ActionKind::receive_forward:
      pending = one(receive(action, stage_input(action.stage, action.microbatch)));
      return;
    case ActionKind::forward: return forward(action);
    case ActionKind::send_forward:
      pending = one(send(action, stage_output(model_.part(), action.stage, action.microbatch)));
      return;
    case ActionKind::receive_backward:
      pending = one(receive(action, output_gradient(action.stage, action.microbatch)));
      return;
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: return backward(action);
    case ActionKind::send_backward:
      pending = one(send(action, input_gradient(model_.part(), action.stage, action.microbatch)));
      return;
    case ActionKind::open_gradients: return open_gradients(action);
    case ActionKind::reduce_gradients: pending = unit(action).reduce_gradients(ops_, mesh_, converted(action)); return;
    case ActionKind::store_gradients: return unit(action).store_gradients(ops_);
    case ActionKind::reduce_parts: pending = unit(action).reduce_parts(ops_, mesh_, converted(action)); return;
    case ActionKind::sum_replicas: pending = unit(action).sum_replicas(ops_, mesh_); return;
    case ActionKind::sum_tied: pending = unit(action).sum_tied(ops_, mesh_); return;
    case ActionKind::clip: return clip();
    case ActionKind::update: return unit(action).update(ops_, input_.adamw, scalars(adamw_scalar, num_adamw_scalars));
    case ActionKind::gather_parameters: pending = gather_parameters(action); return;
    case ActionKind::release_parameters: return unit(action).release_parameters();
    case ActionKind::report: return report();
  }
}

// Sequence i of the global batch goes to microbatch i / (DP B), data rank (i / B) mod DP: any layout sees the same
// global batch. With the tokens goes whatever else is another number in every step.
void Step::load_batch() {
  const ModelPart& part = model_.part();
  const std::int64_t B = part.options.num_sequences, T = part.options.seq_len, DP = config_.data_parallel_degree(),
                     M = config_.num_microbatches();
  const std::int64_t data_rank =
      mesh_.coordinate(Axis::dp_replicate) * mesh_.shape().degree(Axis::dp_shard) + mesh_.coordinate(Axis::dp_shard);
  host_tokens_.resize(static_cast<std::size_t>(M * B * T));
  host_targets_.resize(host_tokens_.size());
  if (part.options.masks_documents) host_starts_.resize(host_tokens_.size());
  for (std::int64_t m = 0; m < M; ++m)
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t sequence = input_.batch * config_.training.global_batch_size + (m * DP + data_rank) * B + b;
      const auto offset = static_cast<std::size_t>((m * B + b) * T);
      input_.batches->read(sequence, T, host_tokens_.data() + offset, host_targets_.data() + offset);
      if (part.options.masks_documents) input_.batches->read_document_starts(sequence, T, host_starts_.data() + offset);
    }
  ops_.upload(of_batch(BufferRole::tokens), host_tokens_.data());
  ops_.upload(of_batch(BufferRole::targets), host_targets_.data());
  if (part.options.masks_documents) ops_.upload(of_batch(BufferRole::document_starts), host_starts_.data());
  const auto ignored = std::count(host_targets_.begin(), host_targets_.end(), ignored_target);
  const StepScalars given = {
      .num_targets = static_cast<double>(static_cast<std::int64_t>(host_targets_.size()) - ignored),
      .num_stopping = input_.wants_stop ? 1.0 : 0.0,
      .loss_scale = input_.loss_scale.value_or(1),
      .adamw = scalars_of(input_.adamw)};
  ops_.upload(scalars(0, num_scalars), &given);
}

void Step::forward(const Action& action) {
  const auto [kind, stage, m, unit, id, after] = action;
  const StagePart& part = model_.part().stage(stage);
  Stack workspace = memory_.region(kind_, {BufferRole::workspace, id});
  Context context = {ops_, mesh_, workspace, microbatch(m)};
  const auto region = [&](BufferRole role) { return memory_.region(kind_, {role, m, stage}); };
  Stash& stash = stashes_[{stage, m}];
  if (unit <= 0)
    stash = Stash(region(BufferRole::stash), region(BufferRole::input_stash),
                  region(BufferRole::gradient_stash));  // of a stage or its first unit
  const Tensor x = part.is_first() ? Tensor() : boundary(stage_input(stage, m));
  const Tensor y = part.is_last() ? Tensor() : boundary(stage_output(model_.part(), stage, m));
  part.stage->forward(context, unit, x, y, stash);
  memory_.note_use(kind_, {BufferRole::stash, m, stage}, stash.slot().peak_bytes());
  memory_.note_use(kind_, {BufferRole::input_stash, m, stage}, stash.input_slot().peak_bytes());
  memory_.note_use(kind_, {BufferRole::workspace, id}, workspace.peak_bytes());
}

void Step::backward(const Action& action) {
  const auto [kind, stage, m, unit, id, after] = action;
  StagePart& part = model_.part().stage(stage);
  Stack workspace = memory_.region(kind_, {BufferRole::workspace, id});
  Context context = {ops_, mesh_, workspace, microbatch(m)};
  Stash& stash = stashes_[{stage, m}];
  if (kind == ActionKind::backward) part.stage->backward(context, unit, gradients_of(stage, m), stash);
  if (kind == ActionKind::backward_input) {
    part.stage->backward_input(context, unit, gradients_of(stage, m), stash);
    memory_.note_use(kind_, {BufferRole::gradient_stash, m, stage}, stash.gradient_slot().peak_bytes());
  }
  if (kind == ActionKind::backward_weight) part.stage->backward_weight(context, unit, stash);
  memory_.note_use(kind_, {BufferRole::workspace, id}, workspace.peak_bytes());
}

Stage::Gradients Step::gradients_of(int stage, int microbatch) {
  const StagePart& part = model_.part().stage(stage);
  const int between = part.stage->num_units() - 1;
  return {.dy = part.is_last() ? Tensor() : boundary(output_gradient(stage, microbatch)),
          .dx = part.is_first() ? Tensor() : boundary(input_gradient(model_.part(), stage, microbatch)),
          .flow = {between >= 1 ? boundary({BufferRole::flow_0, microbatch, stage}) : Tensor(),
                   between >= 2 ? boundary({BufferRole::flow_1, microbatch, stage}) : Tensor()}};
}

// From ZeRO-2 on the gradients of one microbatch have whole buffers of their own, under ZeRO-3 parameters for some
// uses.
void Step::open_gradients(const Action& action) {
  ShardedUnit& opened = unit(action);
  opened.bind_gradients(
      memory_.unit_buffers(kind_, {BufferRole::unreduced_grad, action.id}, opened, opened.options().grad_dtype));
  opened.zero_gradients(ops_);
}

std::vector<Pending> Step::gather_parameters(const Action& action) {
  ShardedUnit& gathered = unit(action);
  const ShardOptions& options = gathered.options();
  if (options.shards_parameters())
    gathered.bind_parameters(
        memory_.unit_buffers(kind_, {BufferRole::gathered_param, action.id}, gathered, options.dtype));
  return gathered.gather_parameters(ops_, mesh_);
}

// For gradients that travel in another format than their own; else none.
std::vector<Tensor> Step::converted(const Action& action) {
  const ShardedUnit& reduced = unit(action);
  if (!reduced.options().converts_gradients()) return {};
  const bool is_of_parts = action.kind == ActionKind::reduce_parts;
  const BufferKey key = {BufferRole::converted_grad, action.id};
  return is_of_parts ? memory_.part_buffers(kind_, key, reduced, reduced.options().reduce_dtype)
                     : memory_.unit_buffers(kind_, key, reduced, reduced.options().reduce_dtype);
}

// Gradients carry the loss scale / (expected targets of the global batch); the scale is taken away and the count that
// was summed over all ranks corrects them once, together with clipping.
void Step::clip() {
  const Tensor squares = scalars(clip_scalar, num_clip_scalars), num_targets = scalars(count_scalar, num_count_scalars);
  for (const ShardedUnit* each : model_.part().units()) each->add_squares(ops_, squares);
  all_reduce(world_group, squares).wait();
  ops_.gradient_factor({.sum_of_squares = squares,
                        .num_targets = num_targets,
                        .norm = scalars(norm_scalar, 1),
                        .factor = scalars(grad_scale_scalar, 1),
                        .loss_scale = loss_scale(),
                        .expected_targets = expected_targets(),
                        .max_norm = input_.max_norm});
  if (!observer_) return;
  double count = 0;
  ops_.download(&count, num_targets);
  observer_(model_, count > 0 ? expected_targets() / count / input_.loss_scale.value_or(1) : 0.0);
}

void Step::report() {
  all_reduce(world_group, scalars(report_scalar, num_report_scalars)).wait();
  StepScalars read;
  ops_.download(&read, scalars(0, num_read_scalars));
  result_ = {.loss = read.num_targets > 0 ? read.loss / read.num_targets : 0.0,
             .grad_norm = read.grad_norm,
             .num_targets = read.num_targets,
             .is_skipped = input_.loss_scale && !std::isfinite(read.grad_norm),
             .stops = read.num_stopping > 0};
  if (result_.is_skipped) result_.grad_norm = std::numeric_limits<double>::infinity();  // whatever overflow made of it
}

Pending Step::all_reduce(const Group& group, Tensor x) {
  ops_.publish();
  return mesh_.comm(group).all_reduce(x, ReduceOp::sum);
}

Pending Step::send(const Action& action, BufferKey from) {
  ops_.publish();
  return mesh_.comm(pipeline_group).send(boundary(from), model_.part().peer_of(action));
}

Pending Step::receive(const Action& action, BufferKey into) {
  ops_.publish();  // what is still enqueued may read what lay in the buffer before
  return mesh_.comm(pipeline_group).receive(boundary(into), model_.part().peer_of(action));
}

Tensor Step::boundary(BufferKey key) {
  const ModelPart& part = model_.part();
  return memory_.tensor(kind_, key, part.options.dtype, part.boundary_sizes());
}

Tensor Step::scalars(std::int64_t first, std::int64_t count) {
  return memory_.tensor(kind_, {BufferRole::scalars}, DType::float64, {num_scalars}).rows(first, count);
}

Tensor Step::loss_scale() { return input_.loss_scale ? scalars(loss_scale_scalar, 1) : Tensor(); }

double Step::expected_targets() const {
  return static_cast<double>(config_.training.global_batch_size * config_.training.seq_len);
}

Tensor Step::of_batch(BufferRole role) {
  return memory_.tensor(kind_, {role}, DType::int32, {config_.num_microbatches() * model_.part().options.num_tokens()});
}

Microbatch Step::microbatch(int index) {
  const std::int64_t N = model_.part().options.num_tokens();
  return {.tokens = of_batch(BufferRole::tokens).rows(index * N, N),
          .targets = of_batch(BufferRole::targets).rows(index * N, N),
          .document_starts = model_.part().options.masks_documents
                                 ? of_batch(BufferRole::document_starts).rows(index * N, N)
                                 : Tensor(),
          .loss_sum = scalars(model_.part().options.tp_rank == 0 ? report_scalar : uncounted_loss_scalar, 1),
          .gradient_scale = 1 / expected_targets(),
          .loss_scale = loss_scale(),
          .wants_gradient = kind_ == ProgramKind::training};
}

}  // namespace echelon
