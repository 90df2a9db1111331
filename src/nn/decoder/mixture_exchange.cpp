// A mixture whose experts are on several ranks: rows go to the ranks of their experts and come back, in rounds.
//
//     forward           the last round first, so that round 0 leaves in the stash what backward reads
//     backward          round 0, then the others, computed again where round 0 was
//     backward_input    the others in workspace: what round 0 leaves is for backward_weight, which
//     backward_weight   computes them once more
//
// The rows of x that a rank has sent are where those of y, or dx, come back to.
#include "nn/decoder/mixture.h"

namespace echelon {

Mixture::Arrived Mixture::place_arrived(const ComputePass& pass) const {
  const bool drops = recomputes_from_x();
  const std::int64_t Q = exchange_.most_rows();
  const auto place = [&](int which, DType dtype, const Sizes& sizes) {
    return pass.place({this, which, drops, LastReader::backward_weight}, dtype, sizes);
  };
  return {{.slots = place(saved_row_slots, DType::int32, {Q, 1}),
           .weights = place(saved_row_weights, score_dtype(), {Q, 1}),
           .offsets = place(saved_row_offsets, DType::int32, {exchange_.num_experts() + 1})},
          place(saved_x_rows, options_.dtype, {Q, options_.model.hidden_size})};
}

Mixture::Exchanged Mixture::exchanged(Context& context, const Stash& stash) const {
  const Choice choice = saved_choice(stash);
  ExpertRounds plan = exchange_.plan(context, choice.of_ranks);
  const Tensor slots = exchange_.sent_slots(context, plan, choice.slots);
  return {.plan = std::move(plan),
          .of_ranks = choice.of_ranks,
          .offsets = choice.offsets,
          .slots = slots,
          .x = take_rows(context, exchange_.num_sent(), options_.model.hidden_size),
          .weights = context.workspace.take(score_dtype(), {exchange_.num_sent(), exchange_.num_weights()})};
}

void Mixture::permute_sent(Context& context, Tensor of_tokens, const Exchanged& of, Tensor rows) const {
  context.ops.permute_to_experts({.x = of_tokens, .slots = of.slots, .y = rows});
}

void Mixture::permute_x(Context& context, const Stash& stash, const Exchanged& of) const {
  const Tensor weights = saved_choice(stash).weights;
  permute_sent(context, saved_x(stash), of, of.x);
  if (exchange_.sends_to_nodes()) return permute_sent(context, weights, of, of.weights);
  const Sizes column = {weights.num_elements(), 1};
  context.ops.permute_to_experts({.x = weights.reshaped(column), .slots = of.slots.reshaped(column), .y = of.weights});
}

void Mixture::receive(Context& context, const Exchanged& of, int round, const Arrived& to, const Inner& inner) const {
  const Stack::Scope scope(context.workspace);
  const Tensor x = context.workspace.take(to.x.dtype, to.x.sizes);
  const std::array<ExpertExchange::Matrices, 2> all = {{{x, of.x}, {to.rows.weights, of.weights}}};
  exchange_.dispatch(context, of.plan, round, all);
  exchange_.order(context, of.plan, round, of.of_ranks, {to.rows.slots, to.rows.offsets}, {x, of.offsets});
  const ExpertRows there = rows_that_came(context, of, round, to.rows, 2);
  permute_first(context, x, there, to.x);
  experts_.inner_products(context.ops, to.x, there, inner);
}

ExpertRows Mixture::rows_that_came(Context& context, const Exchanged& of, int round, const ExpertRows& all,
                                   int num_matmuls) const {
  exchange_.count_flops(context, of.plan, round, num_matmuls * 2 * experts_.width() * options_.model.hidden_size);
  return all.first(of.plan.num_received(round));
}

void Mixture::permute_first(Context& context, Tensor from, const ExpertRows& rows, Tensor to) const {
  if (rows.count == 0) return;
  context.ops.permute_to_experts({.x = from.rows(0, rows.count), .slots = rows.slots, .y = to.rows(0, rows.count)});
}

void Mixture::reserve_round(Context& context, const Exchanged& of, const Arrived& arrived, const Inner& inner) const {
  for (const Tensor& scratch : {arrived.x, inner.gate}) {
    const Stack::Scope scope(context.workspace);
    (void)context.workspace.take(scratch.dtype, scratch.sizes);
    const std::array<ExpertExchange::Matrices, 2> all = {{{arrived.x, of.x}, {arrived.rows.weights, of.weights}}};
    exchange_.reserve(context.workspace, all);
  }
}

void Mixture::receive_dy(Context& context, const Exchanged& of, int round, const ExpertRows& at, Tensor dy_rows) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dy = context.workspace.take(dy_rows.dtype, dy_rows.sizes);
  const std::array<ExpertExchange::Matrices, 1> all = {{{dy, of.dy}}};
  exchange_.dispatch(context, of.plan, round, all);
  permute_first(context, dy, at, dy_rows);
}

void Mixture::give_back(Context& context, const Exchanged& of, int round, const ExpertRows& from,
                        const Returned& rows) const {
  const Stack::Scope scope(context.workspace);
  const Tensor in_order = context.workspace.take(rows.rows.dtype, rows.rows.sizes);
  if (from.count > 0)
    context.ops.combine_experts(
        {.y = rows.rows.rows(0, from.count), .slots = from.slots, .out = in_order.rows(0, from.count)});
  const std::array<ExpertExchange::Matrices, 2> all = {{{in_order, of.x}, {rows.dweights, of.weights}}};
  exchange_.give_back(context, of.plan, round, std::span(all).first(rows.dweights.exists() ? 2 : 1));
}

// In a backward pass: what forward dropped of round 0.
void Mixture::receive_first(Context& context, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Exchanged of = exchanged(context, stash);
  permute_x(context, stash, of);
  receive(context, of, 0, saved_arrived(stash), saved_inner(stash));
}

void Mixture::combine_exchanged(Context& context, const Stash& stash, Tensor partial) const {
  const Stack::Scope scope(context.workspace);
  const Exchanged of = exchanged(context, stash);
  const Arrived arrived = saved_arrived(stash);
  const Inner inner = saved_inner(stash);
  permute_x(context, stash, of);
  if (context.microbatch.expert_traffic != nullptr)
    *context.microbatch.expert_traffic += {.num_rounds = of.plan.num_rounds(), .num_exchanges = 1};
  for (int round = of.plan.num_rounds() - 1; round >= 0; --round) {
    receive(context, of, round, arrived, inner);
    const Stack::Scope of_round(context.workspace);
    const Tensor y_rows = context.workspace.take(arrived.x.dtype, arrived.x.sizes);
    const ExpertRows rows = rows_that_came(context, of, round, arrived.rows, 1);
    experts_.outputs(context, inner, rows, y_rows);
    give_back(context, of, round, rows, {y_rows});
  }
  context.ops.combine_experts({.y = of.plan.rows_of(of.x), .slots = of.slots, .out = partial});
}

void Mixture::exchanged_backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Arrived arrived = saved_arrived(stash);
  const Inner inner = saved_inner(stash);
  Exchanged of = exchanged(context, stash);
  of.dy = take_rows(context, exchange_.num_sent(), options_.model.hidden_size);
  permute_sent(context, dy, of, of.dy);
  if (of.plan.num_rounds() > 1) permute_x(context, stash, of);
  for (int round = 0; round < of.plan.num_rounds(); ++round) {
    if (round > 0) receive(context, of, round, arrived, inner);
    const Stack::Scope of_round(context.workspace);
    const Tensor dy_rows = context.workspace.take(arrived.x.dtype, arrived.x.sizes), dx_rows = dy_rows,
                 activated = context.workspace.take(inner.gate.dtype, inner.gate.sizes),
                 dweights = context.workspace.take(score_dtype(), arrived.rows.weights.sizes);
    const ExpertRows rows = rows_that_came(context, of, round, arrived.rows, 6);
    receive_dy(context, of, round, rows, dy_rows);
    experts_.row_gradients(context, inner, rows, {dy_rows, activated, dweights.rows(0, rows.count)});
    experts_.weight_gradients(context.ops, inner, rows, {dy_rows, activated, arrived.x});
    experts_.input_gradients(context.ops, inner, rows, dx_rows);
    give_back(context, of, round, rows, {dx_rows, dweights});
  }
  const Tensor dlogits = context.workspace.take(options_.dtype, {num_tokens(), spec().num_experts});
  router_gradient(context, stash, returned_dweights(context, of, choice), dlogits);
  router_weight_gradient(context, dlogits, saved_x(stash));
  input_gradient(context, dlogits, dx, of.plan.rows_of(of.x), of.slots);
}

void Mixture::exchanged_backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Choice choice = saved_choice(stash);
  const Arrived first = saved_arrived(stash);
  const Inner first_inner = saved_inner(stash);
  const auto like = [&](const Tensor& x) { return context.workspace.take(x.dtype, x.sizes); };
  const Arrived again = {{like(first.rows.slots), like(first.rows.weights), like(first.rows.offsets)}, like(first.x)};
  const Inner inner_again = {like(first_inner.gate), like(first_inner.up)};
  const Tensor saved_rows = stash.save_gradient(this, saved_dy_rows, first.x.dtype, first.x.sizes);
  Exchanged of = exchanged(context, stash);
  of.dy = take_rows(context, exchange_.num_sent(), options_.model.hidden_size);
  permute_sent(context, dy, of, of.dy);
  if (of.plan.num_rounds() > 1) permute_x(context, stash, of);
  for (int round = 0; round < of.plan.num_rounds(); ++round) {
    const bool is_first = round == 0;
    const Arrived& arrived = is_first ? first : again;
    const Inner& inner = is_first ? first_inner : inner_again;
    if (!is_first) receive(context, of, round, arrived, inner);
    const Stack::Scope of_round(context.workspace);
    const Tensor rows = like(first.x), more_activated = like(inner.gate), dweights = like(arrived.rows.weights),
                 dy_rows = is_first ? saved_rows : rows,
                 activated = is_first ? stash.saved(this, saved_activated) : more_activated;
    const ExpertRows there = rows_that_came(context, of, round, arrived.rows, 3);
    receive_dy(context, of, round, there, dy_rows);
    experts_.row_gradients(context, inner, there, {dy_rows, activated, dweights.rows(0, there.count)});
    experts_.input_gradients(context.ops, inner, there, rows);
    give_back(context, of, round, there, {rows, dweights});
  }
  const Tensor dlogits = stash.saved(this, saved_dlogits);
  router_gradient(context, stash, returned_dweights(context, of, choice), dlogits);
  input_gradient(context, dlogits, dx, of.plan.rows_of(of.x), of.slots);
}

void Mixture::exchanged_backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Arrived arrived = saved_arrived(stash);
  const Inner inner = saved_inner(stash);
  const Tensor dy_rows = stash.saved(this, saved_dy_rows), activated = stash.saved(this, saved_activated),
               dweights = context.workspace.take(score_dtype(), arrived.rows.weights.sizes);
  Exchanged of = exchanged(context, stash);
  of.dy = take_rows(context, exchange_.num_sent(), options_.model.hidden_size);
  reserve_round(context, of, arrived, inner);
  if (of.plan.num_rounds() > 1) {
    permute_x(context, stash, of);
    permute_sent(context, stash.saved(this, saved_dy), of, of.dy);
  }
  for (int round = 0; round < of.plan.num_rounds(); ++round) {
    const ExpertRows rows = rows_that_came(context, of, round, arrived.rows, round > 0 ? 4 : 3);
    if (round > 0) {
      receive(context, of, round, arrived, inner);
      receive_dy(context, of, round, rows, dy_rows);
      experts_.row_gradients(context, inner, rows, {dy_rows, activated, dweights.rows(0, rows.count)});
    }
    experts_.weight_gradients(context.ops, inner, rows, {dy_rows, activated, arrived.x});
  }
}

Tensor Mixture::returned_dweights(Context& context, const Exchanged& of, const Choice& choice) const {
  const Tensor dweights = context.workspace.take(score_dtype(), choice.weights.sizes);
  if (exchange_.sends_to_nodes()) {
    context.ops.combine_experts({.y = of.plan.rows_of(of.weights), .slots = of.slots, .out = dweights});
    return dweights;
  }
  const Sizes column = {choice.num_rows(), 1};
  context.ops.combine_experts(
      {.y = of.plan.rows_of(of.weights), .slots = choice.slots.reshaped(column), .out = dweights.reshaped(column)});
  return dweights;
}

}  // namespace echelon
