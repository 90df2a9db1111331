#include "ops/operations/mixture/experts.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/mixture/expert_rows.h"
#include "ops/sample.h"

namespace echelon {
namespace {

/// Rows [N, D] of tokens and [R, D] of experts.
void check_slots(const ArgumentChecker& must, const Tensor& slots, const Tensor& of_tokens, const Tensor& of_experts) {
  must.dims("the tokens' rows", of_tokens, 2);
  must.computes("the tokens' rows", of_tokens);
  check_rows_of_slots(must, slots, of_experts);
  must.dtype("the experts' rows", of_experts, of_tokens.dtype);
  must.that(of_tokens.size(0) == slots.size(0), "the tokens' rows", of_tokens, "have a row for each row of slots");
  must.that(of_experts.size(1) == of_tokens.size(1), "the experts' rows", of_experts, "be as wide as those of tokens");
}

void check_weights(const ArgumentChecker& must, std::string_view name, const Tensor& weights, const Tensor& slots,
                   DType activations) {
  must.statistics(name, weights, slots.num_elements(), activations);
}

/// Of rows that have come back from all ranks with features of their experts.
AxisLayout sum_of_addends(const Inference& call, const Tensor& slots) {
  const int inside = call.ranks().experts().inside;
  if (slots.size(1) != inside)
    call.fail(
        fmt::format("{} addends of a row are summed, but {} ranks have features of its expert", slots.size(1), inside));
  return at_node_layout;
}

struct SampleTokens {
  std::int64_t N, k;
};
/// As many tokens as make s.m() rows: of two experts each if that is even.
SampleTokens sample_tokens(const SampleOperands& s) {
  const std::int64_t k = s.m() % 2 == 0 ? 2 : 1;
  return {s.m() / k, k};
}

}  // namespace

void check(const ExpertSlotsArgs& args) {
  const ArgumentChecker must("expert_slots");
  must.dims("experts", args.experts, 2);
  must.dtype("experts", args.experts, DType::int32);
  must.like("slots", args.slots, args.experts);
  check_offsets(must, args.offsets);
}
// Experts are read twice: to be counted, and to be placed. Rows without a slot count too.
OpCost cost(const ExpertSlotsArgs& args) {
  return cost_by_elements(args.experts, 2, 2 * bytes_of(args.experts) + bytes_of(args.slots, args.offsets));
}
Operands operands_of(const ExpertSlotsArgs& args) { return {DType::int32, {args.experts}, {args.slots, args.offsets}}; }
void infer(Inference& call, const ExpertSlotsArgs& args) {
  const Operand experts = call.read("experts", args.experts);
  LayoutType offsets;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(experts, axis);
    offsets[axis] = experts[axis].placement == TensorPlacement::sharded ? own_layout : experts[axis];
  }
  call.write(args.slots, experts.piece.type);
  call.write(args.offsets, offsets);
}
void sample(SampleOperands& s, ExpertSlotsArgs& args) {
  args = {.experts = s.tokens(num_sample_experts).reshaped({s.m(), 1}),
          .slots = sample_slots(s, s.m(), 1),
          .offsets = sample_offsets(s, 0)};
}
SampleSizes usual_sizes(const ExpertSlotsArgs& /*args*/) { return {}; }

void check(const ArrivedSlotsArgs& args) {
  const ArgumentChecker must("arrived_slots");
  must.dims("of_ranks", args.of_ranks, 2);
  must.dtype("of_ranks", args.of_ranks, DType::int32);
  must.dims("slots", args.slots, 2);
  must.dtype("slots", args.slots, DType::int32);
  must.that(args.slots.size(1) == 1, "slots", args.slots, "have one slot for a row");
  check_offsets(must, args.offsets);
  must.that(args.first_expert >= 0 && args.first_expert + args.offsets.size(0) <= args.of_ranks.size(1), "of_ranks",
            args.of_ranks, "have the experts of this rank");
}
OpCost cost(const ArrivedSlotsArgs& args) {
  return cost_by_elements(args.slots, 2, bytes_of(args.of_ranks, args.slots, args.offsets));
}
Operands operands_of(const ArrivedSlotsArgs& args) {
  return {DType::int32, {args.of_ranks}, {args.slots, args.offsets}};
}
// Rows come over the axes of an expert group; over others they are those of a rank's own tokens, as before.
void infer(Inference& call, const ArrivedSlotsArgs& args) {
  const Operand of_ranks = call.read("of_ranks", args.of_ranks);
  LayoutType slots, offsets;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(of_ranks, axis);
    offsets[axis] = of_ranks[axis];
    slots[axis] = call.ranks().divides_experts(axis)                     ? dispatched_layout
                  : of_ranks[axis] == own_layout && axis != TypeAxis::pp ? sharded_rows
                                                                         : of_ranks[axis];
  }
  call.write(args.slots, slots);
  call.write(args.offsets, offsets);
}
void sample(SampleOperands& s, ArrivedSlotsArgs& args) {
  args = {.of_ranks = sample_offsets(s, s.m()).reshaped({1, num_sample_experts + 1}),
          .slots = sample_slots(s, s.m(), 1),
          .offsets = sample_offsets(s, 0)};
}
SampleSizes usual_sizes(const ArrivedSlotsArgs& /*args*/) { return {}; }

void check(const PermuteToExpertsArgs& args) {
  check_slots(ArgumentChecker("permute_to_experts"), args.slots, args.x, args.y);
}
OpCost cost(const PermuteToExpertsArgs& args) { return cost_by_rows(args.y, 0, bytes_of(args.x, args.slots, args.y)); }
Operands operands_of(const PermuteToExpertsArgs& args) { return {args.x.dtype, {args.x, args.slots}, {args.y}}; }
void infer(Inference& call, const PermuteToExpertsArgs& args) {
  const Operand x = call.read("x", args.x), slots = call.read("slots", args.slots);
  LayoutType y = x.piece.type;
  for (const TypeAxis axis : call.axes()) {
    require_same_tokens(call, slots, x, axis);
    if (x[axis] == at_node_layout && call.ranks().experts().gather_tokens()) y[axis] = dispatched_layout;
  }
  call.write(args.y, y);
}
void sample(SampleOperands& s, PermuteToExpertsArgs& args) {
  const auto [N, k] = sample_tokens(s);
  args = {.x = s.x({N, s.n()}), .slots = sample_slots(s, N, k), .y = s.rows()};
}
SampleSizes usual_sizes(const PermuteToExpertsArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const CombineExpertsArgs& args) {
  const ArgumentChecker must("combine_experts");
  check_slots(must, args.slots, args.out, args.y);
  if (args.weights.exists()) check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
}
OpCost cost(const CombineExpertsArgs& args) {
  return cost_by_rows(args.y, args.weights.exists() ? 2 : 1,
                      bytes_of(args.y, args.slots, args.out) + bytes_if(args.weights));
}
Operands operands_of(const CombineExpertsArgs& args) {
  return {args.y.dtype, existing({args.y, args.slots, args.weights}), {args.out}};
}
void infer(Inference& call, const CombineExpertsArgs& args) {
  const Operand y = call.read("y", args.y), slots = call.read("slots", args.slots);
  LayoutType out = y.piece.type;
  for (const TypeAxis axis : call.axes()) {
    require_same_tokens(call, slots, y, axis);
    if (y[axis] == addends_at_node_layout) out[axis] = sum_of_addends(call, args.slots);
    // Complete rows are with one of all ranks alone where these do not divide features.
    const ExpertRanks& experts = call.ranks().experts();
    if (y[axis] == dispatched_layout && experts.gather_tokens() && !experts.divide_features)
      out[axis] = dispatched_addends_layout;
  }
  if (args.weights.exists()) {
    const Operand weights = call.read("weights", args.weights);
    for (const TypeAxis axis : call.axes()) require_same_tokens(call, weights, y, axis);
  }
  call.write(args.out, out);
}
void sample(SampleOperands& s, CombineExpertsArgs& args) {
  const auto [N, k] = sample_tokens(s);
  args = {.y = s.rows(), .slots = sample_slots(s, N, k), .out = s.x({N, s.n()}), .weights = s.sums({N, k})};
}
SampleSizes usual_sizes(const CombineExpertsArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const CombineExpertsBackwardArgs& args) {
  const ArgumentChecker must("combine_experts_backward");
  check_slots(must, args.slots, args.dout, args.y);
  must.like("dy", args.dy, args.y);
  check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
  check_weights(must, "dweights", args.dweights, args.slots, args.y.dtype);
}
OpCost cost(const CombineExpertsBackwardArgs& args) {
  return cost_by_rows(args.y, 3, bytes_of(args.dout, args.y, args.slots, args.weights, args.dy, args.dweights));
}
Operands operands_of(const CombineExpertsBackwardArgs& args) {
  return {args.y.dtype, {args.dout, args.y, args.slots, args.weights}, {args.dy, args.dweights}};
}
// dy is linear in dout, and so is dweights.
void infer(Inference& call, const CombineExpertsBackwardArgs& args) {
  const Operand dout = call.read("dout", args.dout), y = call.read("y", args.y), slots = call.read("slots", args.slots),
                weights = call.read("weights", args.weights);
  LayoutType dy, dweights;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {slots, weights}) require_same_tokens(call, x, dout, axis);
    dy[axis] = dout[axis];
    dweights[axis] = products_of_rows(call, dout, y, axis);
  }
  call.write(args.dy, dy);
  call.write(args.dweights, dweights);
}
void sample(SampleOperands& s, CombineExpertsBackwardArgs& args) {
  const auto [N, k] = sample_tokens(s);
  const Tensor y = s.rows();
  args = {.dout = s.x({N, s.n()}),
          .y = y,
          .slots = sample_slots(s, N, k),
          .weights = s.sums({N, k}),
          .dy = y,
          .dweights = s.sums({N, k})};
}
SampleSizes usual_sizes(const CombineExpertsBackwardArgs& /*args*/) { return {}; }

}  // namespace echelon
