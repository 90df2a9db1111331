#include "ops/operations/mixture/balance.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/mixture/expert_rows.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

void check_counts(const ArgumentChecker& must, const Tensor& counts) {
  must.dims("counts", counts, 2);
  must.dtype("counts", counts, DType::float64);
}

void check_sequences(const ArgumentChecker& must, const Tensor& counts, const Tensor& of_tokens, std::int64_t first,
                     std::int64_t per_sequence) {
  must.that(per_sequence >= 1 && first >= 0, "counts", counts, "have sequences of one token or more");
  must.that(first + of_tokens.size(0) <= counts.size(0) * per_sequence, "counts", counts,
            "have a row for the sequence of each token");
}

/// Data-parallel ranks have sequences of their own; the ranks of other axes have parts of the same ones.
bool divides_sequences(TypeAxis axis) { return axis != TypeAxis::dp_replicate && axis != TypeAxis::dp_shard; }

}  // namespace

void check(const CountExpertsArgs& args) {
  const ArgumentChecker must("count_experts");
  must.dims("experts", args.experts, 2);
  must.dtype("experts", args.experts, DType::int32);
  check_counts(must, args.counts);
  check_sequences(must, args.counts, args.experts, args.first_token, args.tokens_per_sequence);
  if (args.num_nan.exists()) {
    must.scalars("num_nan", args.num_nan, 1);
    must.count("weights", args.weights, args.experts.num_elements());
    must.computes("weights", args.weights);
  }
  if (!args.num_dropped.exists()) return;
  must.scalars("num_dropped", args.num_dropped, 1);
  must.like("slots", args.slots, args.experts);
}
OpCost cost(const CountExpertsArgs& args) {
  return cost_by_elements(
      args.experts, 1,
      bytes_of(args.experts) + 2 * bytes_of(args.counts) + bytes_if(args.weights) + bytes_if(args.slots));
}
Operands operands_of(const CountExpertsArgs& args) {
  return {DType::int32,
          existing({args.experts, args.weights, args.slots, args.counts, args.num_nan, args.num_dropped}),
          {}};
}
void infer(Inference& call, const CountExpertsArgs& args) {
  const Operand experts = call.read("experts", args.experts);
  LayoutType counts = as_addend(call, experts, args.counts, experts.piece.type);
  const bool is_of_one = args.counts.size(0) == 1;  // then all tokens are added up
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(experts, axis);
    const bool is_cut = experts[axis].placement == TensorPlacement::sharded;
    if (is_cut) counts[axis] = is_of_one || divides_sequences(axis) ? partial_layout : sharded_rows;
  }
  call.add_to("counts", args.counts, counts);
  const auto count_rows = [&](std::string_view role, const Tensor& sum, const Tensor& of_rows) {
    if (!sum.exists()) return;
    const Operand rows = call.read("what is counted", of_rows);
    for (const TypeAxis axis : call.axes()) require_same_tokens(call, rows, experts, axis);
    call.add_to(role, sum, counts);
  };
  count_rows("num_nan", args.num_nan, args.weights);
  count_rows("num_dropped", args.num_dropped, args.slots);
}
void sample(SampleOperands& s, CountExpertsArgs& args) {
  args = {.experts = s.tokens(num_sample_experts).reshaped({s.m(), 1}),
          .counts = s.filled(DType::float64, {1, num_sample_experts}),
          .tokens_per_sequence = s.m()};
}
SampleSizes usual_sizes(const CountExpertsArgs& /*args*/) { return {}; }

void check(const RouterLossesArgs& args) {
  const ArgumentChecker must("router_losses");
  must.dims("logits", args.logits, 2);
  must.that(args.logits.dtype == DType::float32 || args.logits.dtype == DType::float64, "logits", args.logits,
            "be float32 or float64");
  must.like("gradient", args.gradient, args.logits);
  must.dims("experts", args.experts, 2);
  must.dtype("experts", args.experts, DType::int32);
  must.that(args.experts.size(0) == args.logits.size(0), "experts", args.experts, "have a row for each token");
  must.scalars("losses", args.losses, num_router_losses);
  must.scalars("num_targets", args.num_targets, 1);
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
  must.that(args.rule.sequence == 0 || args.counts.exists(), "logits", args.logits, "have the counts of sequences");
  must.that(args.rule.global == 0 || args.loads.exists(), "logits", args.logits, "have the loads of the step before");
  if (args.loads.exists()) must.scalars("loads", args.loads, args.logits.size(1));
  if (!args.counts.exists()) return;
  check_counts(must, args.counts);
  must.that(args.counts.size(1) == args.logits.size(1), "counts", args.counts, "have a column for each expert");
  check_sequences(must, args.counts, args.logits, args.first_token, args.tokens_per_sequence);
}
// The scores 3, their factors 4, the gradient 3.
OpCost cost(const RouterLossesArgs& args) {
  return cost_by_rows(
      args.logits, 10,
      bytes_of(args.logits, args.experts, args.gradient) + bytes_if(args.counts) + bytes_if(args.loads));
}
Operands operands_of(const RouterLossesArgs& args) {
  return {
      args.logits.dtype,
      existing({args.logits, args.experts, args.num_targets, args.counts, args.loads, args.loss_scale, args.losses}),
      {args.gradient}};
}
void infer(Inference& call, const RouterLossesArgs& args) {
  const Operand logits = call.read("logits", args.logits), experts = call.read("experts", args.experts);
  call.require_the_same(call.read("num_targets", args.num_targets));
  if (args.loss_scale.exists()) call.require_the_same(call.read("loss_scale", args.loss_scale));
  if (args.loads.exists()) call.require_the_same(call.read("loads", args.loads));
  LayoutType losses = as_addend(call, logits, args.losses, logits.piece.type);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(logits, axis);
    require_same_tokens(call, experts, logits, axis);
    if (logits[axis].placement == TensorPlacement::sharded) losses[axis] = partial_layout;
  }
  if (args.counts.exists()) {
    const Operand counts = call.read("counts", args.counts);
    for (const TypeAxis axis : call.axes())
      if (divides_sequences(axis)) call.require_whole(counts, axis);
  }
  call.write(args.gradient, logits.piece.type);
  call.add_to("losses", args.losses, losses);
}
void sample(SampleOperands& s, RouterLossesArgs& args) {
  args = {.logits = s.sums({s.m(), s.n()}),
          .experts = s.integers({s.m(), 1}, [](std::int64_t /*i*/) { return 0; }),
          .gradient = s.sums({s.m(), s.n()}),
          .losses = s.filled(DType::float64, {num_router_losses}),
          .num_targets = s.scalar(),
          .rule = {.z = 1},
          .tokens_per_sequence = s.m()};
}
SampleSizes usual_sizes(const RouterLossesArgs& /*args*/) { return {}; }

void check(const BalanceExpertsArgs& args) {
  const ArgumentChecker must("balance_experts");
  check_counts(must, args.counts);
  must.scalars("factor", args.factor, 1);
  for (const auto& [name, tensor, dtype] :
       {std::tuple{"loads", args.loads, DType::float64}, {"bias", args.bias, DType::float32}}) {
    if (!tensor.exists()) continue;
    must.dims(name, tensor, 2);
    must.dtype(name, tensor, dtype);
    must.that(tensor.size(0) == args.counts.size(0) && tensor.size(1) <= args.counts.size(1), name, tensor,
              "have a row for each of counts, of as many columns at most");
  }
}
OpCost cost(const BalanceExpertsArgs& args) {
  return cost_by_elements(args.counts, 3, bytes_of(args.counts) + bytes_if(args.loads) + 2 * bytes_if(args.bias));
}
Operands operands_of(const BalanceExpertsArgs& args) {
  return {DType::float64, existing({args.counts, args.factor, args.bias, args.loads}), {}};
}
void infer(Inference& call, const BalanceExpertsArgs& args) {
  for (const auto& [name, tensor] : {std::pair{"counts", args.counts}, {"factor", args.factor}})
    call.require_the_same(call.read(name, tensor));
  for (const Tensor& x : {args.loads, args.bias})
    if (x.exists()) call.write(x, LayoutType());
}
void sample(SampleOperands& s, BalanceExpertsArgs& args) {
  args = {.counts = s.filled(DType::float64, {s.m(), num_sample_experts}),
          .factor = s.scalar(),
          .loads = s.filled(DType::float64, {s.m(), num_sample_experts})};
}
SampleSizes usual_sizes(const BalanceExpertsArgs& /*args*/) { return {}; }

}  // namespace echelon
