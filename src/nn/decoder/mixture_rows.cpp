// A mixture of experts on this rank: the choice of experts, its gradient, and rows that stay here.
#include "nn/decoder/mixture.h"

#include "nn/tensor_parallel.h"

namespace echelon {

void Mixture::route(Context& context, Tensor logits, const Choice& choice) const {
  Ops& ops = context.ops;
  const Tensor& is_routed = context.microbatch.is_routed;
  ops.choose_experts({.logits = logits,
                      .experts = choice.experts,
                      .weights = choice.weights,
                      .bias = row_of(context.microbatch.router.bias),
                      .is_routed = is_routed.exists() && num_tokens() < is_routed.size(0)
                                       ? local_tokens(options_, is_routed)
                                       : is_routed,
                      .rule = rule_});
  ops.expert_slots({.experts = choice.experts, .slots = choice.slots, .offsets = choice.offsets});
  if (choice.of_ranks.exists()) exchange_.gather(context, choice.of_ranks, choice.offsets);
}

void Mixture::router_gradient(Context& context, const Stash& stash, Tensor dweights, Tensor dlogits) const {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Tensor logits = stash.saved(this, saved_logits), addend = balance(context, logits, choice);
  context.ops.choose_experts_backward({.logits = logits,
                                       .experts = choice.experts,
                                       .dweights = dweights,
                                       .dlogits = dlogits,
                                       .addend = addend,
                                       .rule = rule_});
}

void Mixture::router_weight_gradient(Context& context, Tensor dlogits, Tensor x) {
  if (router_.trains) context.ops.matmul(weight_gradient(router_, dlogits, x));
}

Tensor Mixture::permuted(Context& context, Tensor of_tokens, const Choice& choice) const {
  const Tensor rows = take_rows(context, choice.num_rows(), of_tokens.size(1));
  context.ops.permute_to_experts({.x = of_tokens, .slots = choice.slots, .y = rows});
  return rows;
}

void Mixture::combine_local(Context& context, const Stash& stash, Tensor partial) const {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Tensor y_rows = take_rows(context, choice.num_rows(), options_.model.hidden_size);
  experts_.outputs(context, saved_inner(stash), choice.rows(), y_rows);
  context.ops.combine_experts({.y = y_rows, .slots = choice.slots, .out = partial});
}

void Mixture::input_gradient(Context& context, Tensor dlogits, Tensor dx, Tensor dx_rows, const Choice& choice) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, region_, dx);
  context.ops.combine_experts({.y = dx_rows, .slots = choice.slots, .out = partial});
  context.ops.matmul({.a = dlogits, .b = router_.value, .c = partial, .accumulates = true});
  enter_backward(context, region_, dx, partial);
}

void Mixture::save_choice(Stash& stash) const {
  const Sizes sizes = {num_tokens(), spec().num_experts_per_tok};
  stash.save(this, saved_experts, DType::int32, sizes, LastReader::backward_input);
  stash.save(this, saved_weights, score_dtype(), sizes,
             exchange_.is_needed() ? LastReader::backward_weight : LastReader::backward_input);
  stash.save(this, saved_slots, DType::int32, sizes);
  stash.save(this, saved_offsets, DType::int32, {spec().num_experts + 1});
  if (exchange_.is_needed())
    stash.save(this, saved_of_ranks, DType::int32, {exchange_.num_ranks(), spec().num_experts + 1});
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
          .offsets = stash.saved(this, saved_offsets),
          .of_ranks = exchange_.is_needed() ? stash.saved(this, saved_of_ranks) : Tensor()};
}

Mixture::Inner Mixture::saved_inner(const Stash& stash) const {
  return {.gate = stash.saved(this, saved_gate), .up = stash.saved(this, saved_up)};
}

Mixture::Arrived Mixture::saved_arrived(const Stash& stash) const {
  return {{.slots = stash.saved(this, saved_row_slots),
           .weights = stash.saved(this, saved_row_weights),
           .offsets = stash.saved(this, saved_row_offsets)},
          stash.saved(this, saved_x_rows)};
}

}  // namespace echelon
