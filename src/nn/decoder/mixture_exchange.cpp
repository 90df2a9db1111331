// A mixture whose experts are on several ranks: rows go to the ranks of their experts and come back, in rounds.
//
//     forward           the last round first, so that round 0 leaves in the stash what backward reads
//     backward          round 0, then the others, computed again where round 0 was
//     backward_input    the others in workspace: what round 0 leaves is for backward_weight, which
//     backward_weight   computes them once more
//
// One exchange travels at a time, and the shared expert is computed meanwhile. In forward, rows of the next round also
// come during the last matmul of this one, which go back during the next one's first matmuls. That takes no more
// memory: a round's y is stored where its x was. Backward reads x until the end, so there rounds follow each other: dy
// comes during the first matmuls of a round that is computed again, and dx goes back during weight gradients.
//
// The rows of x that a rank has sent are where those of y, or dx, come back to. Rows that came of x are read by weight
// gradients alone: of frozen experts no pass keeps them, and backward_weight exchanges nothing.
#include "nn/decoder/mixture.h"

namespace echelon {

Mixture::Arrived Mixture::place_arrived(const ComputePass& pass) const {
  const std::int64_t Q = exchange_.most_rows();
  const auto place = [&](int which, DType dtype, const Sizes& sizes) {
    const bool is_dropped = drops(BlockOperation::experts) || (which == saved_x_rows && !experts_.train());
    return pass.place({this, which, RowKind::none, last_reader()}, is_dropped, dtype, sizes);
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

void Mixture::receive(Context& context, const Round& round, const Arrived& to, const Inner& inner,
                      const Meanwhile& meanwhile) const {
  const Stack::Scope scope(context.workspace);
  const Tensor x = context.workspace.take(to.x.dtype, to.x.sizes);
  const std::array<ExpertExchange::Matrices, 2> all = {{{x, round.of.x, to.x}, {to.rows.weights, round.of.weights}}};
  Travel travel = exchange_.dispatch(context, round, all, exchange_.take_room(context.workspace, all));
  if (meanwhile) meanwhile();
  travel.wait();
  experts_.inner_products(context.ops, to.x, in_order(context, round, x, to), inner);
  exchange_.count(context, {.rows_again = round.of.plan.num_received(round.index)});
}

void Mixture::receive_both(Context& context, const Round& round, const Arrived& to, const Inner& inner,
                           Tensor dy_rows) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dy = context.workspace.take(dy_rows.dtype, dy_rows.sizes), x = dy_rows;
  ExpertRows there;
  {
    const Stack::Scope of_x(context.workspace);
    const std::array<ExpertExchange::Matrices, 2> all = {{{x, round.of.x, to.x}, {to.rows.weights, round.of.weights}}};
    exchange_.dispatch(context, round, all, exchange_.take_room(context.workspace, all)).wait();
    there = in_order(context, round, x, to);
  }
  const std::array<ExpertExchange::Matrices, 1> all = {{{dy, round.of.dy, dy_rows}}};
  Travel travel = exchange_.dispatch(context, round, all, exchange_.take_room(context.workspace, all));
  experts_.inner_products(context.ops, to.x, there, inner);
  travel.wait();
  permute_first(context, dy, there, dy_rows);
  exchange_.count(context, {.rows_again = round.of.plan.num_received(round.index)});
}

ExpertRows Mixture::in_order(Context& context, const Round& round, Tensor x, const Arrived& to) const {
  const auto& [of, index] = round;
  exchange_.order(context, of.plan, index, of.of_ranks, {to.rows.slots, to.rows.offsets},
                  {to.rows.weights, of.offsets});
  const ExpertRows there = rows_that_came(context, round, to.rows, 2);
  permute_first(context, x, there, to.x);
  return there;
}

ExpertRows Mixture::rows_that_came(Context& context, const Round& round, const ExpertRows& all, int num_matmuls) const {
  const auto& [of, index] = round;
  exchange_.count_flops(context, of.plan, index, num_matmuls * 2 * experts_.width() * options_.model.hidden_size);
  return all.first(of.plan.num_received(index));
}

void Mixture::permute_first(Context& context, Tensor from, const ExpertRows& rows, Tensor to) const {
  if (rows.count == 0 || exchange_.gathers_tokens()) return;
  context.ops.permute_to_experts({.x = from.rows(0, rows.count), .slots = rows.slots, .y = to.rows(0, rows.count)});
}

void Mixture::reserve_round(Context& context, const Exchanged& of, const Arrived& arrived, const Inner& inner) const {
  for (const Tensor& scratch : {arrived.x, inner.gate}) {
    const Stack::Scope scope(context.workspace);
    (void)context.workspace.take(scratch.dtype, scratch.sizes);
    const std::array<ExpertExchange::Matrices, 2> all = {
        {{arrived.x, of.x, arrived.x}, {arrived.rows.weights, of.weights}}};
    (void)exchange_.take_room(context.workspace, all);
  }
}

void Mixture::receive_dy(Context& context, const Round& round, const ExpertRows& at, Tensor dy_rows,
                         const Meanwhile& meanwhile) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dy = context.workspace.take(dy_rows.dtype, dy_rows.sizes);
  const std::array<ExpertExchange::Matrices, 1> all = {{{dy, round.of.dy, dy_rows}}};
  Travel travel = exchange_.dispatch(context, round, all, exchange_.take_room(context.workspace, all));
  if (meanwhile) meanwhile();
  travel.wait();
  permute_first(context, dy, at, dy_rows);
}

Tensor Mixture::as_they_came(Context& context, const Round& round, Tensor rows, const ExpertRows& from) const {
  if (exchange_.gathers_tokens()) return exchange_.sums_of_tokens(context, round, rows, rows.size(1));
  const Tensor as_came = context.workspace.take(rows.dtype, rows.sizes);
  if (from.count > 0)
    context.ops.combine_experts(
        {.y = rows.rows(0, from.count), .slots = from.slots, .out = as_came.rows(0, from.count)});
  return as_came;
}

void Mixture::give_back(Context& context, const Round& round, const ExpertRows& from, const Returned& rows,
                        const Meanwhile& meanwhile) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dweights = exchange_.gathers_tokens()
                              ? exchange_.sums_of_tokens(context, round, rows.dweights, exchange_.num_weights())
                              : rows.dweights;
  const std::array<ExpertExchange::Matrices, 2> all = {
      {{as_they_came(context, round, rows.rows, from), round.of.x, rows.rows}, {dweights, round.of.weights}}};
  Travel travel = exchange_.give_back(context, round, all, exchange_.take_room(context.workspace, all));
  if (meanwhile) meanwhile();
  travel.wait();
}

// In a backward pass: what forward dropped of round 0, and of the shared expert.
void Mixture::receive_dropped(Context& context, const Stash& stash) const {
  const auto of_shared = [&] {
    if (!drops_shared()) return;
    shared_->start_prepared(context, stash);  // the bits of forward
    shared_->finish_prepared(context, stash);
  };
  if (!drops(BlockOperation::experts)) return of_shared();
  const Stack::Scope scope(context.workspace);
  const Exchanged of = exchanged(context, stash);
  permute_x(context, stash, of);
  receive(context, {of}, saved_arrived(stash), saved_inner(stash), of_shared);
}

// Two buffers of Q rows: in `come` rows arrive; the other one holds activations, and then rows that go back.
void Mixture::combine_exchanged(Context& context, const Stash& stash, Tensor partial, Tensor of_shared) const {
  const Stack::Scope scope(context.workspace);
  const Exchanged of = exchanged(context, stash);
  const Arrived arrived = saved_arrived(stash);
  const Inner inner = saved_inner(stash);
  permute_x(context, stash, of);
  exchange_.count(context, {.num_rounds = of.plan.num_rounds(), .num_exchanges = 1});
  const auto like = [&](const Tensor& x) { return context.workspace.take(x.dtype, x.sizes); };
  const Tensor come = like(arrived.x), weights = like(arrived.rows.weights);
  std::array<ExpertExchange::Matrices, 2> all = {{{come, of.x, arrived.x}, {arrived.rows.weights, of.weights}}};
  const ExpertExchange::Room room = exchange_.take_room(context.workspace, all);
  const std::int64_t free = context.workspace.used_bytes();
  int index = of.plan.num_rounds() - 1;
  Travel there = exchange_.dispatch(context, Round{of, index}, all, room), back;
  if (shared_) shared_->start_prepared(context, stash);
  for (there.wait(); index >= 0; --index) {
    if (index + 1 < of.plan.num_rounds()) context.ops.copy(arrived.rows.weights, weights);
    experts_.inner_products(context.ops, arrived.x, in_order(context, {of, index}, come, arrived), inner);
    back.wait();
    context.workspace.rewind(free);
    all[1].arrived = weights;
    if (index > 0) there = exchange_.dispatch(context, Round{of, index - 1}, all, room);
    const ExpertRows rows = rows_that_came(context, {of, index}, arrived.rows, 1);
    const Tensor y_rows = index > 0 ? arrived.x : come;
    {
      const Stack::Scope of_activated(context.workspace);
      experts_.outputs(context, inner, rows, y_rows);
    }
    const ExpertExchange::Matrices y = {as_they_came(context, {of, index}, y_rows, rows), of.x, y_rows};
    there.wait();
    back = exchange_.give_back(context, Round{of, index}, {&y, 1}, room);
  }
  if (shared_) {
    shared_->finish_prepared(context, stash);
    shared_->project(context, of_shared, stash);
  }
  back.wait();
  context.ops.combine_experts({.y = of.plan.rows_of(of.x), .slots = of.slots, .out = partial});
}

void Mixture::exchanged_backward(Context& context, Tensor dx, const Mlp::Gradients& of_shared, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const auto shared_inner = [&] {
    if (shared_) shared_->backward_inner(context, of_shared, stash);
  };
  const auto shared_outer = [&] {
    if (shared_) shared_->backward_outer(context, of_shared, stash);
  };
  const Choice choice = saved_choice(stash);
  const Arrived arrived = saved_arrived(stash);
  const Inner inner = saved_inner(stash);
  Exchanged of = exchanged(context, stash);
  of.dy = take_rows(context, exchange_.num_sent(), options_.model.hidden_size);
  permute_sent(context, of_shared.dy, of, of.dy);
  if (of.plan.num_rounds() > 1) permute_x(context, stash, of);
  for (int index = 0; index < of.plan.num_rounds(); ++index) {
    const Round round = {of, index};
    const Stack::Scope of_round(context.workspace);
    const Tensor dy_rows = context.workspace.take(arrived.x.dtype, arrived.x.sizes), dx_rows = dy_rows;
    const ExpertRows rows = rows_that_came(context, round, arrived.rows, experts_.train() ? 6 : 3);
    if (index == 0) {
      reserve_round(context, of, arrived, inner);
      receive_dy(context, round, rows, dy_rows, shared_inner);
    } else {
      receive_both(context, round, arrived, inner, dy_rows);
    }
    const Tensor activated = context.workspace.take(inner.gate.dtype, inner.gate.sizes),
                 dweights = context.workspace.take(score_dtype(), arrived.rows.weights.sizes);
    experts_.row_gradients(context, inner, rows, {dy_rows, activated, dweights.rows(0, rows.count)});
    if (experts_.train()) experts_.down_weight_gradient(context.ops, rows, {dy_rows, activated, arrived.x});
    experts_.input_gradients(context.ops, inner, rows, dx_rows);
    give_back(context, round, rows, {dx_rows, dweights}, [&] {
      if (experts_.train()) experts_.inner_weight_gradients(context.ops, inner, rows, arrived.x);
      if (index == 0) shared_outer();
    });
  }
  const Tensor dlogits = context.workspace.take(options_.dtype, {num_tokens(), spec().num_experts});
  router_gradient(context, stash, returned_dweights(context, of, choice), dlogits);
  router_weight_gradient(context, dlogits, saved_x(stash));
  input_gradient(context, dlogits, dx, of.plan.rows_of(of.x), of.slots);
}

void Mixture::exchanged_backward_input(Context& context, const InputGradients& to, const Mlp::Gradients& of_shared,
                                       Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const auto shared_inner = [&] {
    if (shared_) shared_->backward_input_inner(context, of_shared, stash);
  };
  const auto shared_outer = [&] {
    if (shared_) shared_->backward_input_outer(context, of_shared, stash);
  };
  const Choice choice = saved_choice(stash);
  const Arrived first = saved_arrived(stash);
  const Inner first_inner = saved_inner(stash);
  const auto like = [&](const Tensor& x) { return context.workspace.take(x.dtype, x.sizes); };
  const Arrived again = {{like(first.rows.slots), like(first.rows.weights), like(first.rows.offsets)}, like(first.x)};
  const Inner inner_again = {like(first_inner.gate), like(first_inner.up)};
  const Tensor first_dy = place_gradient(context, stash, {this, saved_dy_rows}, experts_.train(), first.x.sizes);
  Exchanged of = exchanged(context, stash);
  of.dy = take_rows(context, exchange_.num_sent(), options_.model.hidden_size);
  permute_sent(context, to.dy, of, of.dy);
  if (of.plan.num_rounds() > 1) permute_x(context, stash, of);
  for (int index = 0; index < of.plan.num_rounds(); ++index) {
    const bool is_first = index == 0;
    const Round round = {of, index};
    const Arrived& arrived = is_first ? first : again;
    const Inner& inner = is_first ? first_inner : inner_again;
    const Stack::Scope of_round(context.workspace);
    const Tensor rows = experts_.train() ? like(first.x) : first_dy, dy_rows = is_first ? first_dy : rows;
    const ExpertRows there = rows_that_came(context, round, arrived.rows, 3);
    if (is_first) {
      reserve_round(context, of, arrived, inner);
      receive_dy(context, round, there, dy_rows, shared_inner);
    } else {
      receive_both(context, round, arrived, inner, dy_rows);
    }
    const Tensor more_activated = experts_.train() ? like(inner.gate) : to.activated,
                 dweights = like(arrived.rows.weights), activated = is_first ? to.activated : more_activated;
    experts_.row_gradients(context, inner, there, {dy_rows, activated, dweights.rows(0, there.count)});
    experts_.input_gradients(context.ops, inner, there, rows);
    give_back(context, round, there, {rows, dweights}, is_first ? Meanwhile(shared_outer) : Meanwhile());
  }
  router_gradient(context, stash, returned_dweights(context, of, choice), to.dlogits);
  input_gradient(context, to.dlogits, to.dx, of.plan.rows_of(of.x), of.slots);
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
  for (int index = 0; index < of.plan.num_rounds(); ++index) {
    const Round round = {of, index};
    const ExpertRows rows = rows_that_came(context, round, arrived.rows, index > 0 ? 4 : 3);
    if (index > 0) {
      receive_both(context, round, arrived, inner, dy_rows);
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
