#include "ops/operations/mixture/router.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/mixture/expert_rows.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

void check_choices(const ArgumentChecker& must, const Tensor& logits, const Tensor& experts, const Tensor& weights) {
  must.dims("logits", logits, 2);
  must.that(logits.dtype == DType::float32 || logits.dtype == DType::float64, "logits", logits,
            "be float32 or float64");
  must.that(logits.size(1) >= 1 && logits.size(1) <= most_experts, "logits", logits,
            "have a column for each of 1 to 8192 experts");
  must.dims("experts", experts, 2);
  must.dtype("experts", experts, DType::int32);
  must.that(experts.size(0) == logits.size(0), "experts", experts, "have a row for each token");
  must.dtype("weights", weights, logits.dtype);
  must.count("weights", weights, experts.num_elements());
}

void check_rule(const ArgumentChecker& must, const RouterRule& rule, const Tensor& logits, const Tensor& experts) {
  const std::int64_t E = logits.size(1), groups = rule.num_groups, chosen = rule.num_chosen_groups;
  must.that(groups >= 1 && groups <= most_expert_groups && E % groups == 0, "logits", logits,
            "have experts that 1 to 32 groups divide");
  must.that(chosen >= 1 && chosen <= groups, "logits", logits, "have as many groups as are chosen");
  must.that(rule.group_score == GroupScore::best || groups == 1 || E / groups >= 2, "logits", logits,
            "have two experts in a group whose two best are added");
  must.that(experts.size(1) >= 1 && experts.size(1) <= E / groups * chosen, "experts", experts,
            "be no more than there are in the chosen groups");
}

/// One layout for each token's row of a tensor like x.
AxisLayout for_tokens_of(const Operand& x, TypeAxis axis, const Tensor& result) {
  return with_rows_of(x[axis], x.tensor.size(1), result.size(1));
}

RouterRule sample_rule() { return {.normalises = true}; }

SampleSizes usual_sizes_of_scores() { return {.m = {32, 256, 2048}, .n = {8, 64}}; }

}  // namespace

void check(const ChooseExpertsArgs& args) {
  const ArgumentChecker must("choose_experts");
  check_choices(must, args.logits, args.experts, args.weights);
  check_rule(must, args.rule, args.logits, args.experts);
  if (args.is_routed.exists()) {
    must.dtype("is_routed", args.is_routed, DType::int32);
    must.count("is_routed", args.is_routed, args.logits.size(0));
  }
  if (!args.bias.exists()) return;
  must.dtype("bias", args.bias, DType::float32);
  must.count("bias", args.bias, args.logits.size(1));
}
// A score is an exponential and a division; each is compared once.
OpCost cost(const ChooseExpertsArgs& args) {
  return cost_by_rows(args.logits, 3, bytes_of(args.logits, args.experts, args.weights) + bytes_if(args.bias));
}
Operands operands_of(const ChooseExpertsArgs& args) {
  return {args.logits.dtype, existing({args.logits, args.bias, args.is_routed}), {args.experts, args.weights}};
}
void infer(Inference& call, const ChooseExpertsArgs& args) {
  const Operand logits = call.read("logits", args.logits);
  LayoutType chosen;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(logits, axis);
    if (!logits.is_sharded_along(axis, 0)) call.require_whole(logits, axis);
    chosen[axis] = for_tokens_of(logits, axis, args.experts);
  }
  if (args.bias.exists()) {
    const Operand bias = call.read("bias", args.bias);
    for (const TypeAxis axis : call.axes()) call.require_whole(bias, axis);
  }
  if (args.is_routed.exists()) {
    const Operand is_routed = call.read("is_routed", args.is_routed);
    for (const TypeAxis axis : call.axes()) {
      call.require_complete(is_routed, axis);  // of whole sequences, each rank reads its part
      if (is_routed[axis] != replicated_layout) require_same_tokens(call, is_routed, logits, axis);
    }
  }
  call.write(args.experts, chosen);
  call.write(args.weights, chosen);
}
void sample(SampleOperands& s, ChooseExpertsArgs& args) {
  args = {.logits = s.sums({s.m(), s.n()}),
          .experts = s.integers({s.m(), 1}, [](std::int64_t /*i*/) { return 0; }),
          .weights = s.sums({s.m(), 1}),
          .rule = sample_rule()};
}
SampleSizes usual_sizes(const ChooseExpertsArgs& /*args*/) { return usual_sizes_of_scores(); }

void check(const ChooseExpertsBackwardArgs& args) {
  const ArgumentChecker must("choose_experts_backward");
  check_choices(must, args.logits, args.experts, args.dweights);
  check_rule(must, args.rule, args.logits, args.experts);
  must.count("dlogits", args.dlogits, args.logits.num_elements());
  must.that(accumulate_dtype(args.dlogits.dtype) == args.logits.dtype, "dlogits", args.dlogits,
            "have a dtype whose sums have the dtype of logits");
  if (args.addend.exists()) must.like("addend", args.addend, args.logits);
}
OpCost cost(const ChooseExpertsBackwardArgs& args) {
  return cost_by_rows(args.logits, 4,
                      bytes_of(args.logits, args.experts, args.dweights, args.dlogits) + bytes_if(args.addend));
}
Operands operands_of(const ChooseExpertsBackwardArgs& args) {
  return {args.dlogits.dtype, existing({args.logits, args.experts, args.dweights, args.addend}), {args.dlogits}};
}
// dlogits is linear in dweights. Of ranks with the same tokens, the first adds what all of them have.
void infer(Inference& call, const ChooseExpertsBackwardArgs& args) {
  const Operand logits = call.read("logits", args.logits), experts = call.read("experts", args.experts),
                dweights = call.read("dweights", args.dweights);
  LayoutType dlogits;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(logits, axis);
    require_same_tokens(call, experts, logits, axis);
    if (dweights[axis] == partial_layout && logits[axis] == replicated_layout) {
      dlogits[axis] = partial_layout;
      if (args.addend.exists() && call.ranks().index(axis) > 0)
        call.fail(fmt::format("{}, and is added to addends of {}, but counts where {} = 0 alone",
                              call.words(call.read("the losses' gradient", args.addend), axis), dweights.role,
                              call.ranks().name(axis)));
      continue;
    }
    require_same_tokens(call, dweights, logits, axis);
    dlogits[axis] = for_tokens_of(dweights, axis, args.logits);
  }
  call.write(args.dlogits, dlogits);
}
void sample(SampleOperands& s, ChooseExpertsBackwardArgs& args) {
  args = {.logits = s.sums({s.m(), s.n()}),
          .experts = s.integers({s.m(), 1}, [](std::int64_t /*i*/) { return 0; }),
          .dweights = s.sums({s.m(), 1}),
          .dlogits = s.x({s.m(), s.n()}),
          .rule = sample_rule()};
}
SampleSizes usual_sizes(const ChooseExpertsBackwardArgs& /*args*/) { return usual_sizes_of_scores(); }

void check(const WeightRowsArgs& args) {
  const ArgumentChecker must("weight_rows");
  check_rows_of_slots(must, args.slots, args.x);
  must.like("y", args.y, args.x);
  must.statistics("weights", args.weights, args.slots.num_elements(), args.x.dtype);
}
OpCost cost(const WeightRowsArgs& args) {
  return cost_by_rows(args.x, 1, bytes_of(args.x, args.slots, args.weights, args.y));
}
Operands operands_of(const WeightRowsArgs& args) {
  return {args.x.dtype, {args.x, args.slots, args.weights}, {args.y}};
}
void infer(Inference& call, const WeightRowsArgs& args) {
  const Operand x = call.read("x", args.x), slots = call.read("slots", args.slots),
                weights = call.read("weights", args.weights);
  for (const TypeAxis axis : call.axes())
    for (const Operand& of_tokens : {slots, weights}) require_same_tokens(call, of_tokens, x, axis);
  call.write(args.y, x.piece.type);
}
void sample(SampleOperands& s, WeightRowsArgs& args) {
  const Tensor x = s.rows();
  args = {.x = x, .slots = sample_slots(s, s.m(), 1), .weights = s.sums({s.m(), 1}), .y = x};
}
SampleSizes usual_sizes(const WeightRowsArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const WeightRowsBackwardArgs& args) {
  const ArgumentChecker must("weight_rows_backward");
  check_rows_of_slots(must, args.slots, args.x);
  for (const auto& [name, tensor] : {std::pair{"dy", args.dy}, {"dx", args.dx}}) must.like(name, tensor, args.x);
  if (args.y.exists()) must.like("y", args.y, args.x);
  for (const auto& [name, tensor] : {std::pair{"weights", args.weights}, {"dweights", args.dweights}})
    must.statistics(name, tensor, args.slots.num_elements(), args.x.dtype);
}
OpCost cost(const WeightRowsBackwardArgs& args) {
  return cost_by_rows(args.x, args.y.exists() ? 4 : 3,
                      bytes_of(args.dy, args.x, args.slots, args.weights, args.dx, args.dweights) + bytes_if(args.y));
}
Operands operands_of(const WeightRowsBackwardArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.slots, args.weights}, existing({args.dx, args.dweights, args.y})};
}
void infer(Inference& call, const WeightRowsBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x), slots = call.read("slots", args.slots),
                weights = call.read("weights", args.weights);
  LayoutType dweights;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& of_tokens : {slots, weights}) require_same_tokens(call, of_tokens, x, axis);
    dweights[axis] = products_of_rows(call, dy, x, axis);
  }
  call.write(args.dx, dy.piece.type);
  if (args.y.exists()) call.write(args.y, x.piece.type);
  call.write(args.dweights, dweights);
}
void sample(SampleOperands& s, WeightRowsBackwardArgs& args) {
  const Tensor dy = s.rows(), x = s.rows();
  args = {.dy = dy,
          .x = x,
          .slots = sample_slots(s, s.m(), 1),
          .weights = s.sums({s.m(), 1}),
          .dx = dy,
          .dweights = s.sums({s.m(), 1}),
          .y = x};
}
SampleSizes usual_sizes(const WeightRowsBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

}  // namespace echelon
