// A mixture of experts on this rank: the choice of experts, its gradient, and rows that stay here.
#include "nn/decoder/mixture.h"

#include "nn/tensor_parallel.h"
#include "spec/groups.h"

#include <cmath>
#include <numeric>

namespace echelon {

void Mixture::choose(Context& context, Tensor logits, const Choice& choice) const {
  const Tensor& places = context.microbatch.places;
  context.ops.choose_experts(
      {.logits = logits,
       .experts = choice.experts,
       .weights = choice.weights,
       .bias = options_.forces_balance ? Tensor() : row_of(context.microbatch.router.bias),
       .is_routed = places.exists() && num_tokens() < places.size(0) ? local_tokens(options_, places) : places,
       .rule = rule_});
}

void Mixture::route(Context& context, Tensor logits, const Choice& choice) const {
  choose(context, logits, choice);
  const Stack::Scope scope(context.workspace);
  const bool drops = options_.expert_capacity > 0 && context.microbatch.needs_gradient;
  const Tensor kept = drops ? within_capacity(context, choice) : choice.experts;
  context.ops.expert_slots({.experts = kept, .slots = choice.slots, .offsets = choice.offsets});
  if (choice.of_ranks.exists()) exchange_.gather(context, choice.of_ranks, choice.offsets, kept);
}

ExpertRows Mixture::rows_of(const Context& context, const Choice& choice) const {
  ExpertRows rows = {choice.slots, choice.weights, choice.offsets, choice.num_rows()};
  const std::vector<double>& kept = options_.kept_shares;
  if (context.microbatch.needs_gradient && !kept.empty())
    rows.expected = std::llround(std::accumulate(kept.begin(), kept.end(), 0.0) * static_cast<double>(rows.count));
  return rows;
}

// Of a sequence, context-parallel ranks have parts, and so have ranks that route their own tokens under sequence
// parallelism.
std::optional<Group> Mixture::sequence_parts() const {
  if (num_tokens() < options_.num_tokens()) return sequence_group;
  return options_.tokens ? std::optional(cp_group) : std::nullopt;
}

// Which rows are dropped is a function of whole sequences: each rank gathers the choices of its sequences from all
// ranks that have parts of them, computes the same, and takes its own part. Forward does it once: a dropped row has no
// slot.
Tensor Mixture::within_capacity(Context& context, const Choice& choice) const {
  const std::optional<Group> parts = sequence_parts();
  const auto gathered = [&](const Group& group, const Tensor& part) {
    Comm& comm = context.mesh.comm(group);
    Sizes sizes = part.sizes;
    sizes[0] *= comm.size();
    const Tensor whole = context.workspace.take(part.dtype, sizes);
    if (!context.mesh.has_peers() && context.ops.computes_values()) {
      for (int rank = 0; rank < comm.size(); ++rank)
        context.ops.copy(whole.rows(rank * part.size(0), part.size(0)), part);
      return whole;
    }
    context.ops.publish();
    comm.all_gather(whole, part).wait();
    return whole;
  };
  const Tensor kept = context.workspace.take(DType::int32, choice.experts.sizes), &places = context.microbatch.places;
  const auto of_sequences = [&](const Tensor& part) { return parts ? gathered(*parts, part) : part; };
  // Weights travel as integers: of floats, a group of cp transfers keys alone (blueprint/traffic/context_traffic.h).
  const auto weights_of_sequences = [&] {
    Tensor integers = choice.weights;
    integers.dtype = DType::int32;
    integers.sizes[1] *= size_of(choice.weights.dtype) / size_of(DType::int32);
    Tensor all = of_sequences(integers);
    all.dtype = choice.weights.dtype;
    all.sizes[1] = choice.weights.size(1);
    return all;
  };
  context.ops.limit_experts({.experts = choice.experts,
                             .of_sequences = of_sequences(choice.experts),
                             .places = options_.tokens ? gathered(cp_group, places) : places,
                             .kept = kept,
                             .weights = options_.drops_by_score ? weights_of_sequences() : Tensor(),
                             .first_token = parts ? context.mesh.comm(*parts).rank() * num_tokens() : 0,
                             .tokens_per_sequence = options_.whole_seq_len(),
                             .capacity = options_.expert_capacity});
  return kept;
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

Tensor Mixture::all_tokens(Context& context, Tensor dy, Stash& stash) const {
  if (!experts_.train()) return leave_backward(context, region_, dy);
  const Tensor all =
      stash.save_gradient({this, saved_dy, token_rows()}, options_.dtype, {num_tokens(), options_.model.hidden_size});
  gather_tokens_into(context, region_, all, dy);
  return all;
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
  experts_.outputs(context, saved_inner(stash), rows_of(context, choice), y_rows);
  context.ops.combine_experts({.y = y_rows, .slots = choice.slots, .out = partial});
}

void Mixture::input_gradient(Context& context, Tensor dlogits, Tensor dx, Tensor dx_rows, Tensor slots) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, region_, dx);
  context.ops.combine_experts({.y = dx_rows, .slots = slots, .out = partial});
  context.ops.matmul({.a = dlogits, .b = router_.value, .c = partial, .accumulates = true});
  enter_backward(context, region_, dx, partial);
}

void Mixture::save_choice(Stash& stash) const {
  const Sizes sizes = {num_tokens(), spec().num_experts_per_tok};
  const LastReader of_weights = exchange_.is_needed() ? last_reader() : LastReader::backward_input;
  const auto save = [&](Saved which, RowKind rows, LastReader last_reader, DType dtype, const Sizes& of) {
    stash.save({this, which, rows, last_reader}, dtype, of);
  };
  save(saved_experts, token_rows(), LastReader::backward_input, DType::int32, sizes);
  save(saved_weights, token_rows(), of_weights, score_dtype(), sizes);
  save(saved_slots, token_rows(), last_reader(), DType::int32, sizes);
  save(saved_offsets, RowKind::none, last_reader(), DType::int32, {spec().num_experts + 1});
  if (exchange_.is_needed())
    save(saved_of_ranks, RowKind::none, last_reader(), DType::int32, exchange_.of_ranks_sizes());
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
