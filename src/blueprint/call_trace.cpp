#include "blueprint/call_trace.h"

#include "blueprint/scalars.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

/// Runs actions on tensors without data. A trace is taken in an order in which forward comes first, because backward
/// reads what forward kept.
class Tracer {
 public:
  Tracer(const MeshShape& shape, int rank, ModelPart& part, bool trains)
      : part_(part), mesh_(shape, rank), trains_(trains) {
    const Sizes table = part.rope_table_sizes();
    const DType dtype = accumulate_dtype(part.options.dtype);
    for (StagePart& each : part.stages)
      each.stage->bind_rope_tables(ops_, {nullptr, dtype, table}, {nullptr, dtype, table});
    for (ShardedUnit* unit : part.units()) {
      unit->bind(traced_memory(*unit));
      unit->bind_parameters(whole_buffers(*unit, unit->options().dtype));
      unit->bind_gradients(whole_buffers(*unit, unit->options().grad_dtype));
    }
    ops_.clear();
  }

  CallTrace trace(const Action& action) {
    Stack workspace;
    Context context = {ops_, mesh_, workspace, traced_microbatch()};
    ops_.clear();
    mesh_.clear();
    perform(action, context);
    return {ops_.records(), mesh_.records(), workspace.peak_bytes()};
  }

  [[nodiscard]] const Stash& stash(int stage) { return stashes_[stage]; }

 private:
  static std::vector<BucketMemory> traced_memory(const ShardedUnit& unit) {
    std::vector<BucketMemory> memory;
    const ShardOptions& options = unit.options();
    for (const Bucket& bucket : unit.buckets()) {
      const Sizes whole = {bucket.num_elements}, owned = {unit.owned(bucket).count};
      memory.push_back({.param = {nullptr, options.dtype, options.shards_parameters() ? owned : whole},
                        .grad = {nullptr, options.grad_dtype, options.shards_gradients() ? owned : whole},
                        .master = {nullptr, options.master_dtype(), owned},
                        .m = {nullptr, options.moments_dtype, owned},
                        .v = {nullptr, options.moments_dtype, owned}});
    }
    return memory;
  }

  static std::vector<Tensor> whole_buffers(const ShardedUnit& unit, DType dtype) {
    std::vector<Tensor> buffers;
    for (const Bucket& bucket : unit.buckets()) buffers.push_back({nullptr, dtype, {bucket.num_elements}});
    return buffers;
  }
  /// For the conversion of gradients, or of their owned parts; none where there is no conversion.
  static std::vector<Tensor> converted_buffers(const ShardedUnit& unit, bool of_parts) {
    std::vector<Tensor> buffers;
    if (!unit.options().converts_gradients()) return buffers;
    for (const Bucket& bucket : unit.buckets())
      buffers.push_back(
          {nullptr, unit.options().reduce_dtype, {of_parts ? unit.owned(bucket).count : bucket.num_elements}});
    return buffers;
  }

  [[nodiscard]] Microbatch traced_microbatch() const {
    const Sizes tokens = {part_.options.num_tokens()};
    return {.tokens = {nullptr, DType::int32, tokens},
            .targets = {nullptr, DType::int32, tokens},
            .document_starts = part_.options.masks_documents ? Tensor(nullptr, DType::int32, tokens) : Tensor(),
            .loss_sum = {nullptr, DType::float64, {1}},
            .wants_gradient = trains_};
  }

  [[nodiscard]] Tensor boundary() const { return {nullptr, part_.options.dtype, part_.boundary_sizes()}; }

  void perform(const Action& action, Context& context) {
    switch (action.kind) {
      case ActionKind::load_batch: return;
      case ActionKind::clear_gradients:
        for (ShardedUnit* unit : part_.units()) unit->clear_gradients(ops_);
        return;
      case ActionKind::count_tokens:
        return wait(mesh_.comm(data_group).all_reduce(traced_scalars(num_count_scalars), ReduceOp::sum));
      case ActionKind::receive_forward:
      case ActionKind::receive_backward:
        return wait(mesh_.comm(pipeline_group).receive(boundary(), part_.peer_of(action)));
      case ActionKind::send_forward:
      case ActionKind::send_backward: return wait(mesh_.comm(pipeline_group).send(boundary(), part_.peer_of(action)));
      case ActionKind::forward:
      case ActionKind::backward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight: return compute(action, context);
      case ActionKind::open_gradients: return unit(action).zero_gradients(ops_);
      case ActionKind::reduce_gradients:
        return wait(unit(action).reduce_gradients(ops_, mesh_, converted_buffers(unit(action), false)));
      case ActionKind::store_gradients: return unit(action).store_gradients(ops_);
      case ActionKind::reduce_parts:
        return wait(unit(action).reduce_parts(ops_, mesh_, converted_buffers(unit(action), true)));
      case ActionKind::sum_replicas: return wait(unit(action).sum_replicas(ops_, mesh_));
      case ActionKind::sum_tied: return wait(unit(action).sum_tied(ops_, mesh_));
      case ActionKind::clip:
        for (const ShardedUnit* each : part_.units()) each->add_squares(ops_, traced_scalars(1));
        return wait(
            mesh_.comm(world_group)
                .all_reduce(traced_scalars(num_clip_scalars), ReduceOp::sum));  // what becomes of one number is no work
      case ActionKind::update: return unit(action).update(ops_, {}, traced_scalars(num_adamw_scalars));
      case ActionKind::gather_parameters: return wait(unit(action).gather_parameters(ops_, mesh_));
      case ActionKind::release_parameters: return;
      case ActionKind::report:
        return wait(mesh_.comm(world_group).all_reduce(traced_scalars(num_report_scalars), ReduceOp::sum));
    }
  }

  void compute(const Action& action, Context& context) {
    Stage& stage = *part_.stage(action.stage).stage;
    Stash& stash = stashes_[action.stage];
    const Stage::Gradients gradients = {boundary(), boundary(), {boundary(), boundary()}};
    if (action.kind == ActionKind::forward) stage.forward(context, action.unit, boundary(), boundary(), stash);
    if (action.kind == ActionKind::backward) stage.backward(context, action.unit, gradients, stash);
    if (action.kind == ActionKind::backward_input) stage.backward_input(context, action.unit, gradients, stash);
    if (action.kind == ActionKind::backward_weight) stage.backward_weight(context, action.unit, stash);
  }

  ShardedUnit& unit(const Action& action) { return part_.unit(action); }
  static Tensor traced_scalars(std::int64_t count) { return {nullptr, DType::float64, {count}}; }
  static void wait(Pending pending) { pending.wait(); }
  static void wait(std::vector<Pending> pending) {
    for (Pending& each : pending) each.wait();
  }

  ModelPart& part_;
  TraceOps ops_;
  TraceMesh mesh_;
  std::map<int, Stash> stashes_;  // by stage
  bool trains_;
};

}  // namespace

RankTrace::RankTrace(const MeshShape& mesh, int rank, ModelPart& part, const Program& program)
    : adds_up_microbatches_(!part.units().front()->options().shards_gradients()) {
  for (const Action& action : program)
    if (forms_weight_gradients(action.kind)) first_to_form_.try_emplace(action.stage, action.microbatch);
  Tracer tracer(mesh, rank, part, !first_to_form_.empty());
  const auto trace = [&](const Action& action) {
    const Key key = key_of(action);
    if (!calls_.contains(key)) calls_[key] = tracer.trace(action);
  };
  for (const StagePart& each : part.stages) {
    trace({.kind = ActionKind::forward, .stage = each.index});
    input_stash_bytes_[each.index] = tracer.stash(each.index).input_slot().peak_bytes();
    stash_bytes_[each.index] = tracer.stash(each.index).slot().peak_bytes() + input_stash_bytes_[each.index];
  }
  for (const Action& action : program) trace(action);
  for (const StagePart& each : part.stages)
    gradient_stash_bytes_[each.index] = tracer.stash(each.index).gradient_slot().peak_bytes();
}

RankTrace::Key RankTrace::key_of(const Action& action) const {
  const auto first = first_to_form_.find(action.stage);
  const bool is_first = adds_up_microbatches_ && forms_weight_gradients(action.kind) && first != first_to_form_.end() &&
                        action.microbatch == first->second;
  return {action.kind, action.stage, action.unit, is_first};
}

}  // namespace echelon
