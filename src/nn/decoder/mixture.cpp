#include "nn/decoder/mixture.h"

#include "nn/tensor_parallel.h"

#include <cmath>

namespace echelon {
namespace {

RouterRule rule_of(const MixtureSpec& spec) {
  return {.scores = spec.scoring_func == RouterScores::softmax ? ExpertScores::softmax : ExpertScores::sigmoid,
          .normalises = spec.norm_topk_prob,
          .scale = spec.routed_scaling_factor,
          .num_groups = spec.n_group,
          .num_chosen_groups = spec.topk_group,
          .group_score = spec.sums_two_of_group ? GroupScore::sum_of_two : GroupScore::best};
}

/// Whole on every tensor-parallel rank, each of which has an addend of its gradient.
Param router_weight(const LayerOptions& options, const std::string& name) {
  Param param = replicated(options, name, {options.model.mixture.num_experts, options.model.hidden_size});
  if (options.tp > 1) param.groups.partial = tp_group;
  param.init_std = options.model.initializer_range;
  param.is_overwritten_by_first_matmul = true;
  return param;
}

Param stacked(const LayerOptions& options, const std::string& name, Sizes sizes, int dim_of_features) {
  const std::int64_t F = options.model.mixture.moe_intermediate_size;
  const Slice features = even_slice(F, options.tp, options.tp_rank);
  Param param;
  param.name = name;
  param.slice = TensorSlice(sizes, dim_of_features, {features.first, features.count});
  param.init_std = options.model.initializer_range;
  return param;
}

/// That of an expert is smaller for the same reason as that of an MLP (row_parallel).
Param down_projection(const LayerOptions& options, const std::string& name) {
  const MixtureSpec& spec = options.model.mixture;
  Param param = stacked(options, name, {spec.num_experts, options.model.hidden_size, spec.moe_intermediate_size}, 2);
  param.init_std /= std::sqrt(2.0 * static_cast<double>(options.model.num_hidden_layers));
  return param;
}

LayerOptions options_of_shared_expert(LayerOptions options) {
  options.model.intermediate_size = options.model.mixture.shared_expert_intermediate_size;
  return options;
}

}  // namespace

Mixture::Mixture(const LayerOptions& options, const std::string& name)
    : options_(options),
      rule_(rule_of(spec())),
      features_(even_slice(spec().moe_intermediate_size, options.tp, options.tp_rank)),
      router_(router_weight(options, name + ".gate.weight")),
      gate_(stacked(options, name + ".experts.gate_proj.weight",
                    {spec().num_experts, spec().moe_intermediate_size, options.model.hidden_size}, 1)),
      up_(stacked(options, name + ".experts.up_proj.weight",
                  {spec().num_experts, spec().moe_intermediate_size, options.model.hidden_size}, 1)),
      down_(down_projection(options, name + ".experts.down_proj.weight")) {
  if (spec().shared_expert_intermediate_size > 0)
    shared_.emplace(options_of_shared_expert(options), name + ".shared_expert");
}

std::vector<Param*> Mixture::params() {
  std::vector<Param*> params = {&router_, &gate_, &up_, &down_};
  if (shared_)
    for (Param* param : shared_->params()) params.push_back(param);
  return params;
}

bool Mixture::recomputes_from_x() const { return options_.recompute.operations.contain(BlockOperation::mlp); }

void Mixture::compute(const ComputePass& pass, Tensor x) const {
  const auto& [context, stash, kind] = pass;
  const std::int64_t N = options_.num_tokens(), R = N * spec().num_experts_per_tok;
  const bool drops = recomputes_from_x();
  if (shared_) shared_->compute(pass, x);
  save_x(stash, x);
  if (kind == Pass::forward) {
    stash.save(this, saved_experts, DType::int32, {N, spec().num_experts_per_tok}, LastReader::backward_input);
    stash.save(this, saved_weights, score_dtype(), {N, spec().num_experts_per_tok}, LastReader::backward_input);
    stash.save(this, saved_slots, DType::int32, {N, spec().num_experts_per_tok});
    stash.save(this, saved_offsets, DType::int32, {spec().num_experts + 1});
  }
  const Tensor logits =
      pass.place({this, saved_logits, drops, LastReader::backward_input}, score_dtype(), {N, spec().num_experts});
  const auto place_inner = [&](int which) {
    return pass.place({this, which, drops, LastReader::backward_weight}, options_.dtype, {R, features_.count});
  };
  const Inner inner = {place_inner(saved_gate), place_inner(saved_up)};
  if (!pass.runs(drops)) return;
  const Tensor x_full = enter(context, options_, x);
  if (kind != Pass::forward) save_x(stash, x_full);
  context.ops.matmul({.a = x_full, .b = router_.value, .c = logits, .transpose_b = true});
  if (kind == Pass::forward) route(context.ops, logits, saved_choice(stash));
  inner_products(context, x_full, saved_choice(stash), inner);
}

void Mixture::project(Context& context, Tensor y, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, options_, y);
  combine(context, saved_inner(stash), saved_choice(stash), partial);
  leave(context, options_, y, partial);
  if (!shared_) return;
  const Tensor of_shared = context.workspace.take(y.dtype, y.sizes);
  shared_->project(context, of_shared, stash);
  context.ops.add(y, y, of_shared);
}

// dx is where x is: what reads x comes before what writes dx.

void Mixture::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Inner inner = saved_inner(stash);
  const Tensor dy_full =
      stash.save_gradient(this, saved_dy, options_.dtype, {options_.num_tokens(), options_.model.hidden_size});
  RowGradients to = {
      .dy = {},
      .activated = stash.save_gradient(this, saved_activated, options_.dtype, inner.gate.sizes),
      .dlogits = stash.save_gradient(this, saved_dlogits, options_.dtype, {options_.num_tokens(), spec().num_experts})};
  gather_tokens_into(context, options_, dy_full, dy);
  const Choice choice = saved_choice(stash);
  const Tensor dx_of_shared = shared_ ? context.workspace.take(dx.dtype, dx.sizes) : Tensor();
  if (shared_) shared_->backward_input(context, dy, dx_of_shared, stash);
  {
    const Stack::Scope of_rows(context.workspace);
    to.dy = permuted(context, dy_full, choice);
    row_gradients(context, stash, to);
  }
  input_gradients(context, to.dlogits, dx, stash);
  if (shared_) context.ops.add(dx, dx, dx_of_shared);
}

void Mixture::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor x = saved_x(stash);
  if (shared_) {
    shared_->save_x(stash, x);
    shared_->backward_weight(context, stash);
  }
  const Tensor x_full = x.size(0) == options_.num_tokens() ? x : enter(context, options_, x);
  weight_gradients(context, x_full,
                   {.dy = permuted(context, stash.saved(this, saved_dy), saved_choice(stash)),
                    .activated = stash.saved(this, saved_activated),
                    .dlogits = stash.saved(this, saved_dlogits)},
                   stash);
}

void Mixture::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Inner inner = saved_inner(stash);
  const Tensor x = saved_x(stash), dx_of_shared = shared_ ? context.workspace.take(dx.dtype, dx.sizes) : Tensor();
  if (shared_) shared_->backward(context, dy, dx_of_shared, stash);
  const Tensor dlogits = context.workspace.take(options_.dtype, {options_.num_tokens(), spec().num_experts});
  {
    const Stack::Scope of_rows(context.workspace);
    const Tensor dy_full = leave_backward(context, options_, dy);
    const RowGradients to = {.dy = permuted(context, dy_full, saved_choice(stash)),
                             .activated = context.workspace.take(options_.dtype, inner.gate.sizes),
                             .dlogits = dlogits};
    row_gradients(context, stash, to);
    weight_gradients(context, x.size(0) == options_.num_tokens() ? x : enter(context, options_, x), to, stash);
  }
  input_gradients(context, dlogits, dx, stash);
  if (shared_) context.ops.add(dx, dx, dx_of_shared);
}

void Mixture::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t N = x.size(0);
  const Choice choice = take_choice(context.workspace, N);
  const Tensor logits = context.workspace.take(score_dtype(), {N, spec().num_experts});
  const Inner inner = {take_rows(context, choice.num_rows(), features_.count),
                       take_rows(context, choice.num_rows(), features_.count)};
  context.ops.matmul({.a = x, .b = router_.value, .c = logits, .transpose_b = true});
  route(context.ops, logits, choice);
  inner_products(context, x, choice, inner);
  const Tensor of_shared = shared_ ? context.workspace.take(y.dtype, y.sizes) : Tensor();
  if (shared_) shared_->decode(context, x, of_shared, cache, first_position);
  combine(context, inner, choice, y);
  all_reduce_over_tp(context, options_, y, ReduceOp::sum);
  if (shared_) context.ops.add(y, y, of_shared);
}

}  // namespace echelon
