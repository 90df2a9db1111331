#include "nn/decoder/mixture.h"

#include "nn/tensor_parallel.h"
#include "spec/groups.h"

namespace echelon {
namespace {

RouterRule rule_of(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  return {.scores = spec.scoring_func == RouterScores::softmax ? ExpertScores::softmax : ExpertScores::sigmoid,
          .normalises = spec.norm_topk_prob,
          .scale = spec.routed_scaling_factor,
          .num_groups = options.forces_balance ? 1 : spec.n_group,
          .num_chosen_groups = options.forces_balance ? 1 : spec.topk_group,
          .group_score = spec.sums_two_of_group ? GroupScore::sum_of_two : GroupScore::best};
}

/// Whole on every tensor-parallel rank, each of which has an addend of its gradient; a frozen one has none.
Param router_weight(const LayerOptions& options, const std::string& name) {
  Param param = replicated(options, name, {options.model.mixture.num_experts, options.model.hidden_size});
  param.init_std = options.model.initializer_range;
  param.trains = !options.freezes_router;
  param.is_overwritten_by_first_matmul = true;
  if (options.tp > 1) param.groups.partial = tp_group;
  return param;
}

LayerOptions options_of_region(LayerOptions options) {
  if (options.divides_expert_features) return options;
  options.tp = 1;
  options.tp_rank = 0;
  options.sequence_parallel = false;
  return options;
}

LayerOptions options_of_shared_expert(LayerOptions options) {
  options.model.intermediate_size = options.model.mixture.shared_expert_intermediate_size;
  const bool is_dropped = options.recompute.operations.contain(BlockOperation::shared_expert);
  options.recompute.operations = is_dropped ? BlockOperations{BlockOperation::mlp} : BlockOperations();
  return options;
}

}  // namespace

Mixture::Mixture(const LayerOptions& options, const std::string& name)
    : options_(options),
      region_(options_of_region(options)),
      rule_(rule_of(options)),
      router_(router_weight(options, name + ".gate.weight")),
      experts_(options, name + ".experts"),
      exchange_(options) {
  if (spec().shared_expert_intermediate_size > 0)
    shared_.emplace(options_of_shared_expert(options), name + ".shared_expert", spec().gates_shared_expert);
}

std::vector<Param*> Mixture::params() {
  std::vector<Param*> params = {&router_};
  for (Param* param : experts_.params()) params.push_back(param);
  if (shared_)
    for (Param* param : shared_->params()) params.push_back(param);
  return params;
}

void Mixture::compute(const ComputePass& pass, Tensor x) const {
  const auto& [context, stash, kind] = pass;
  const bool is_forward = kind == Pass::forward, routes = pass.runs(drops(BlockOperation::router)),
             computes_rows = pass.runs(drops(BlockOperation::experts));
  if (shared_) exchange_.is_needed() ? shared_->prepare(pass, x) : shared_->compute(pass, x);
  save_x(stash, x);
  if (is_forward) save_choice(stash);
  const Tensor logits = place_logits(pass);
  const Inner inner = place_inner(pass);
  if (exchange_.is_needed()) (void)place_arrived(pass);
  const Tensor x_full = routes || computes_rows ? enter(context, region_, x) : x;
  if (!is_forward) save_x(stash, x_full);
  if (routes) {
    context.ops.matmul({.a = x_full, .b = router_.value, .c = logits, .transpose_b = true});
    if (options_.forces_balance) force_balance(context, logits);
    if (is_forward) route(context, logits, saved_choice(stash));
  }
  if (exchange_.is_needed()) {
    if (!is_forward) receive_dropped(context, stash);  // forward exchanges when it projects
    return;
  }
  if (!computes_rows) return;
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  experts_.inner_products(context.ops, permuted(context, x_full, choice), rows_of(context, choice), inner);
}

Tensor Mixture::place_logits(const ComputePass& pass) const {
  return pass.place({this, saved_logits, token_rows(), LastReader::backward_input}, drops(BlockOperation::router),
                    score_dtype(), {num_tokens(), spec().num_experts});
}

Mixture::Inner Mixture::place_inner(const ComputePass& pass) const {
  const auto place = [&](int which) {
    return pass.place({this, which, computed_rows(), last_reader()}, drops(BlockOperation::experts), options_.dtype,
                      {num_rows(), experts_.width()});
  };
  return {place(saved_gate), place(saved_up)};
}

void Mixture::project(Context& context, Tensor y, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, region_, y);
  const auto take_of_shared = [&] { return shared_ ? context.workspace.take(y.dtype, y.sizes) : Tensor(); };
  if (exchange_.is_needed()) {
    const Tensor of_shared = take_of_shared();
    combine_exchanged(context, stash, partial, of_shared);
    leave(context, region_, y, partial);
    if (shared_) context.ops.add(y, y, of_shared);
    return;
  }
  combine_local(context, stash, partial);
  leave(context, region_, y, partial);
  if (!shared_) return;
  const Tensor of_shared = take_of_shared();
  shared_->project(context, of_shared, stash);
  context.ops.add(y, y, of_shared);
}

// dx is where x is: what reads x comes before what writes dx.

void Mixture::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dx_of_shared = shared_ ? context.workspace.take(dx.dtype, dx.sizes) : Tensor();
  if (shared_ && !exchange_.is_needed()) shared_->backward_input(context, dy, dx_of_shared, stash);
  const auto place = [&](const StashEntry& entry, bool reads, const Sizes& sizes) {
    return place_gradient(context, stash, entry, reads, sizes);
  };
  const Tensor dy_full = all_tokens(context, dy, stash),
               dlogits = place({this, saved_dlogits, token_rows()}, router_.trains, {num_tokens(), spec().num_experts}),
               activated =
                   place({this, saved_activated, computed_rows()}, experts_.train(), {num_rows(), experts_.width()});
  if (exchange_.is_needed()) {
    exchanged_backward_input(context, {dy_full, activated, dlogits, dx}, {dy, dx_of_shared}, stash);
  } else {
    const Choice choice = saved_choice(stash);
    const Inner inner = saved_inner(stash);
    {
      const Stack::Scope of_rows(context.workspace);
      const Tensor dweights = context.workspace.take(score_dtype(), choice.weights.sizes);
      experts_.row_gradients(context, inner, rows_of(context, choice),
                             {permuted(context, dy_full, choice), activated, dweights});
      router_gradient(context, stash, dweights, dlogits);
    }
    const Tensor dx_rows = take_rows(context, choice.num_rows(), options_.model.hidden_size);
    experts_.input_gradients(context.ops, inner, rows_of(context, choice), dx_rows);
    input_gradient(context, dlogits, dx, dx_rows, choice.slots);
  }
  if (shared_) context.ops.add(dx, dx, dx_of_shared);
}

void Mixture::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor x = saved_x(stash);
  if (shared_) {
    shared_->save_x(stash, x);
    shared_->backward_weight(context, stash);
  }
  if (!experts_.train()) return;
  const Tensor x_full = x.size(0) == num_tokens() ? x : enter(context, region_, x);
  if (exchange_.is_needed()) {
    exchanged_backward_weight(context, stash);
  } else {
    const Stack::Scope of_rows(context.workspace);
    const Choice choice = saved_choice(stash);
    experts_.weight_gradients(context.ops, saved_inner(stash), rows_of(context, choice),
                              {permuted(context, stash.saved(this, saved_dy), choice),
                               stash.saved(this, saved_activated), permuted(context, x_full, choice)});
  }
  if (router_.trains) router_weight_gradient(context, stash.saved(this, saved_dlogits), x_full);
}

void Mixture::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor dx_of_shared = shared_ ? context.workspace.take(dx.dtype, dx.sizes) : Tensor();
  if (exchange_.is_needed()) {
    exchanged_backward(context, dx, shared_ ? shared_->gradients(context, dy, dx_of_shared) : Mlp::Gradients{dy, dx},
                       stash);
  } else {
    if (shared_) shared_->backward(context, dy, dx_of_shared, stash);
    const Tensor x = saved_x(stash),
                 dlogits = context.workspace.take(options_.dtype, {num_tokens(), spec().num_experts});
    const Inner inner = saved_inner(stash);
    const Choice choice = saved_choice(stash);
    {
      const Stack::Scope of_rows(context.workspace);
      const Tensor dy_rows = permuted(context, leave_backward(context, region_, dy), choice),
                   activated = context.workspace.take(options_.dtype, inner.gate.sizes),
                   dweights = context.workspace.take(score_dtype(), choice.weights.sizes);
      experts_.row_gradients(context, inner, rows_of(context, choice), {dy_rows, activated, dweights});
      router_gradient(context, stash, dweights, dlogits);
      if (experts_.train()) {
        const Tensor x_full = x.size(0) == num_tokens() ? x : enter(context, region_, x);
        experts_.weight_gradients(context.ops, inner, rows_of(context, choice),
                                  {dy_rows, activated, permuted(context, x_full, choice)});
        router_weight_gradient(context, dlogits, x_full);
      }
    }
    const Tensor dx_rows = take_rows(context, choice.num_rows(), options_.model.hidden_size);
    experts_.input_gradients(context.ops, inner, rows_of(context, choice), dx_rows);
    input_gradient(context, dlogits, dx, dx_rows, choice.slots);
  }
  if (shared_) context.ops.add(dx, dx, dx_of_shared);
}

void Mixture::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t N = x.size(0);
  Choice choice = take_choice(context.workspace, N);
  const std::int64_t own_experts = exchange_.num_experts();
  choice.offsets = choice.offsets.rows(0, own_experts + 1);
  const Tensor logits = context.workspace.take(score_dtype(), {N, spec().num_experts});
  const Inner inner = {take_rows(context, choice.num_rows(), experts_.width()),
                       take_rows(context, choice.num_rows(), experts_.width())};
  context.ops.matmul({.a = x, .b = router_.value, .c = logits, .transpose_b = true});
  choose(context, logits, choice);
  if (exchange_.is_needed()) {  // CPUs of several kinds could choose otherwise where scores are close
    context.ops.publish();
    Comm& comm = context.mesh.comm(expert_group(options_.ep));
    Pending experts = comm.broadcast(choice.experts, 0), weights = comm.broadcast(choice.weights, 0);
    experts.wait();
    weights.wait();
  }
  context.ops.expert_slots({.experts = choice.experts,
                            .slots = choice.slots,
                            .offsets = choice.offsets,
                            .first_expert = options_.ep_rank * own_experts});
  const Tensor rows = permuted(context, x, choice);
  experts_.inner_products(context.ops, rows, rows_of(context, choice), inner);
  const Tensor of_shared = shared_ ? context.workspace.take(y.dtype, y.sizes) : Tensor();
  if (shared_) shared_->decode(context, x, of_shared, cache, first_position);
  experts_.outputs(context, inner, rows_of(context, choice), rows);
  context.ops.combine_experts({.y = rows, .slots = choice.slots, .out = y});
  all_reduce_over_tp(context, region_, y, ReduceOp::sum);
  if (exchange_.is_needed()) {
    context.ops.publish();
    context.mesh.comm(expert_group(options_.ep)).all_reduce(y, ReduceOp::sum).wait();
  }
  if (shared_) context.ops.add(y, y, of_shared);
}

}  // namespace echelon
