// A mixture of experts on this rank: the choice of experts, and what is computed of their rows. Nothing is sent.
#include "nn/decoder/mixture.h"

#include "nn/tensor_parallel.h"

namespace echelon {

void Mixture::route(Ops& ops, Tensor logits, const Choice& choice) const {
  ops.choose_experts({.logits = logits, .experts = choice.experts, .weights = choice.weights, .rule = rule_});
  ops.expert_slots({.experts = choice.experts, .slots = choice.slots, .offsets = choice.offsets});
}

Tensor Mixture::permuted(Context& context, Tensor of_tokens, const Choice& choice) const {
  const Tensor rows = take_rows(context, choice.num_rows(), of_tokens.size(1));
  context.ops.permute_to_experts({.x = of_tokens, .slots = choice.slots, .y = rows});
  return rows;
}

void Mixture::inner_products(Context& context, Tensor x, const Choice& choice, const Inner& inner) const {
  const Stack::Scope scope(context.workspace);
  const Tensor x_rows = permuted(context, x, choice);
  for (const auto& [w, product] : {std::pair{&gate_, inner.gate}, {&up_, inner.up}})
    context.ops.grouped_matmul(
        {.a = x_rows, .w = w->value, .offsets = choice.offsets, .c = product, .transpose_w = true});
}

void Mixture::combine(Context& context, const Inner& inner, const Choice& choice, Tensor partial) const {
  const Stack::Scope scope(context.workspace);
  Ops& ops = context.ops;
  const Tensor activated = take_rows(context, choice.num_rows(), features_.count),
               y_rows = take_rows(context, choice.num_rows(), options_.model.hidden_size);
  ops.swiglu({.gate = inner.gate, .up = inner.up, .y = activated});
  ops.weight_rows({.x = activated, .slots = choice.slots, .weights = choice.weights, .y = activated});
  ops.grouped_matmul({.a = activated, .w = down_.value, .offsets = choice.offsets, .c = y_rows, .transpose_w = true});
  ops.combine_experts({.y = y_rows, .slots = choice.slots, .out = partial});
}

void Mixture::row_gradients(Context& context, const Stash& stash, const RowGradients& to) const {
  const Stack::Scope scope(context.workspace);
  Ops& ops = context.ops;
  const Choice choice = saved_choice(stash);
  const Inner inner = saved_inner(stash);
  const Tensor dactivated = take_rows(context, choice.num_rows(), features_.count),
               dweights = context.workspace.take(score_dtype(), choice.weights.sizes);
  ops.grouped_matmul({.a = to.dy, .w = down_.value, .offsets = choice.offsets, .c = dactivated});
  ops.swiglu({.gate = inner.gate, .up = inner.up, .y = to.activated});
  ops.weight_rows_backward({.dy = dactivated,
                            .x = to.activated,
                            .slots = choice.slots,
                            .weights = choice.weights,
                            .dx = dactivated,
                            .dweights = dweights,
                            .y = to.activated});
  ops.swiglu_backward({.dy = dactivated, .gate = inner.gate, .up = inner.up, .dgate = inner.gate, .dup = inner.up});
  ops.choose_experts_backward({.logits = stash.saved(this, saved_logits),
                               .experts = choice.experts,
                               .dweights = dweights,
                               .dlogits = to.dlogits,
                               .rule = rule_});
}

void Mixture::weight_gradients(Context& context, Tensor x_full, const RowGradients& of, const Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Inner dinner = saved_inner(stash);
  const auto add = [&](Param& w, Tensor dy, Tensor x) {
    context.ops.grouped_matmul_backward_weight({.dy = dy, .x = x, .offsets = choice.offsets, .dw = w.grad});
  };
  add(down_, of.dy, of.activated);
  const Tensor x_rows = permuted(context, x_full, choice);
  add(gate_, dinner.gate, x_rows);
  add(up_, dinner.up, x_rows);
  context.ops.matmul(weight_gradient(router_, of.dlogits, x_full));
}

void Mixture::input_gradients(Context& context, Tensor dlogits, Tensor dx, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Inner dinner = saved_inner(stash);
  const Tensor partial = partial_of(context, options_, dx);
  {
    const Stack::Scope of_rows(context.workspace);
    const Tensor dx_rows = take_rows(context, choice.num_rows(), options_.model.hidden_size);
    context.ops.grouped_matmul({.a = dinner.gate, .w = gate_.value, .offsets = choice.offsets, .c = dx_rows});
    context.ops.grouped_matmul(
        {.a = dinner.up, .w = up_.value, .offsets = choice.offsets, .c = dx_rows, .accumulates = true});
    context.ops.combine_experts({.y = dx_rows, .slots = choice.slots, .out = partial});
  }
  context.ops.matmul({.a = dlogits, .b = router_.value, .c = partial, .accumulates = true});
  enter_backward(context, options_, dx, partial);
}

Mixture::Choice Mixture::take_choice(Stack& memory, std::int64_t num_tokens) const {
  const Sizes sizes = {num_tokens, spec().num_experts_per_tok};
  return {.experts = memory.take(DType::int32, sizes),
          .weights = memory.take(score_dtype(), sizes),
          .slots = memory.take(DType::int32, sizes),
          .offsets = memory.take(DType::int32, {spec().num_experts + 1})};
}

Mixture::Choice Mixture::saved_choice(const Stash& stash) const {
  return {.experts = stash.saved(this, saved_experts),
          .weights = stash.saved(this, saved_weights),
          .slots = stash.saved(this, saved_slots),
          .offsets = stash.saved(this, saved_offsets)};
}

Mixture::Inner Mixture::saved_inner(const Stash& stash) const {
  return {.gate = stash.saved(this, saved_gate), .up = stash.saved(this, saved_up)};
}

}  // namespace echelon
