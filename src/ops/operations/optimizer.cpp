#include "ops/operations/optimizer.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/inference.h"

namespace echelon {
namespace {

/// The layout of x as one of n parts: itself, or this rank's own part of what all of them hold.
AxisLayout as_part(const Inference& call, const Operand& x, TypeAxis axis) {
  const bool is_whole = x[axis] == replicated_layout || x[axis].placement == TensorPlacement::experts;
  return is_whole && call.memory().is_own_part(x.piece, x.tensor, axis) ? sharded_rows : x[axis];
}

}  // namespace

void check(const SumOfSquaresArgs& args) {
  const ArgumentChecker must("sum_of_squares");
  must.computes("x", args.x);
  must.scalars("sum", args.sum, 1);
}
OpCost cost(const SumOfSquaresArgs& args) {
  return cost_by_elements(args.x, 2, bytes_of(args.x) + 2 * bytes_of(args.sum));
}
Operands operands_of(const SumOfSquaresArgs& args) { return {args.x.dtype, {args.x, args.sum}, {}}; }
// Each element counts once over all ranks: of ranks with the same gradient only the first adds it.
void infer(Inference& call, const SumOfSquaresArgs& args) {
  call.for_uniform_ranges({args.x}, [&](std::int64_t first, std::int64_t count) {
    const Tensor range = range_of(args.x, first, count);
    const Operand x = call.read("x", range);
    LayoutType sum;
    for (const TypeAxis axis : call.axes()) {
      call.require_complete(x, axis);
      const bool counts_here = x[axis].placement == TensorPlacement::experts
                                   ? call.ranks().expert_holders().index == 0
                                   : x[axis] != replicated_layout || call.ranks().index(axis) == 0;
      if (!counts_here)
        call.fail(fmt::format("{}, so it counts where {} = 0 alone, but rank {} counts it too", call.words(x, axis),
                              call.ranks().name(axis), call.ranks().rank()));
      sum[axis] = partial_layout;
    }
    TypedPiece* piece = call.memory().piece_at(range);
    if (piece->is_counted) call.fail("x is counted twice in one sum");
    piece->is_counted = true;
    call.add_to("sum", args.sum, sum);
  });
}
void sample(SampleOperands& s, SumOfSquaresArgs& args) { args = {s.x({s.m()}), s.scalar()}; }
SampleSizes usual_sizes(const SumOfSquaresArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const GradientFactorArgs& args) {
  const ArgumentChecker must("gradient_factor");
  must.scalars("sum_of_squares", args.sum_of_squares, 1);
  must.scalars("num_targets", args.num_targets, 1);
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
  must.scalars("norm", args.norm, 1);
  must.scalars("factor", args.factor, 1);
}
// Two divisions, a root, the norm, its comparison 3, the factor.
OpCost cost(const GradientFactorArgs& args) {
  return cost_by_elements(
      args.factor, 8,
      bytes_of(args.sum_of_squares, args.num_targets, args.norm, args.factor) + bytes_if(args.loss_scale));
}
Operands operands_of(const GradientFactorArgs& args) {
  return {
      args.factor.dtype, existing({args.sum_of_squares, args.num_targets, args.loss_scale}), {args.norm, args.factor}};
}
void infer(Inference& call, const GradientFactorArgs& args) {
  call.require_the_same(call.read("sum_of_squares", args.sum_of_squares));
  call.require_the_same(call.read("num_targets", args.num_targets));
  if (args.loss_scale.exists()) call.require_the_same(call.read("loss_scale", args.loss_scale));
  for (const Tensor& out : {args.norm, args.factor}) call.write(out, LayoutType());
}
void sample(SampleOperands& s, GradientFactorArgs& args) {
  args = {.sum_of_squares = s.scalar(),
          .num_targets = s.scalar(),
          .norm = s.scalar(),
          .factor = s.scalar(),
          .expected_targets = 1,
          .max_norm = 1};
}
SampleSizes usual_sizes(const GradientFactorArgs& /*args*/) { return {}; }

void check(const AdamWArgs& args) {
  const ArgumentChecker must("adamw");
  must.computes("param", args.param);
  must.gradient("grad", args.grad, args.param.dtype);
  must.count("master", args.master, args.param.num_elements());
  const DType wide = accumulate_dtype(args.param.dtype);
  must.that(args.master.dtype == wide || is_remainder(args), "master", args.master,
            "have the accumulate_dtype of param, or int16 with bfloat16");
  must.count("grad", args.grad, args.param.num_elements());
  must.count("m", args.m, args.master.num_elements());
  const bool may_be_coarse = wide == DType::float32 && args.m.dtype == DType::bfloat16;
  must.that(args.m.dtype == wide || may_be_coarse, "m", args.m,
            "have the accumulate_dtype of param, or bfloat16 with float32");
  must.like("v", args.v, args.m);
  must.that(args.noise.slice.row() >= 1, "m", args.m, "have rows of at least one element");
  must.scalars("scalars", args.scalars, num_adamw_scalars);
}
// g 1, decay 2, m 3, v 4, update 5. `param` is written too unless it is the master, and read where the master is its
// remainder. The scalars count nothing.
OpCost cost(const AdamWArgs& args) {
  const std::int64_t param =
      args.param.dtype == args.master.dtype ? 0 : bytes_of(args.param) * (is_remainder(args) ? 2 : 1);
  return cost_by_elements(args.master, 15, bytes_of(args.grad) + 2 * bytes_of(args.master, args.m, args.v) + param);
}
Operands operands_of(const AdamWArgs& args) {
  const Tensor before = is_remainder(args) ? args.param : Tensor();
  return {args.param.dtype, existing({args.master, args.grad, args.m, args.v, args.scalars, before}), {args.param}};
}
void infer(Inference& call, const AdamWArgs& args) {
  call.require_the_same(call.read("scalars", args.scalars));
  call.for_uniform_ranges({args.param, args.master, args.grad, args.m, args.v},
                          [&](std::int64_t first, std::int64_t count) {
                            const Operand master = call.read("master", range_of(args.master, first, count)),
                                          grad = call.read("grad", range_of(args.grad, first, count)),
                                          m = call.read("m", range_of(args.m, first, count)),
                                          v = call.read("v", range_of(args.v, first, count));
                            std::vector<Operand> state = {master, m, v};
                            if (is_remainder(args))
                              state.push_back(call.read("param", range_of(args.param, first, count)));
                            LayoutType type;
                            for (const TypeAxis axis : call.axes()) {
                              call.require_complete(grad, axis);
                              for (const Operand& x : state)
                                if (as_part(call, x, axis) != grad[axis] && x[axis] != grad[axis])
                                  call.fail_together(grad, x, axis);
                              type[axis] = grad[axis];
                            }
                            for (const Tensor& out : {args.param, args.master, args.m, args.v})
                              call.write(range_of(out, first, count), type);
                          });
}
void sample(SampleOperands& s, AdamWArgs& args) {
  const Tensor master = s.of_rows(), param = accumulate_dtype(s.dtype()) == s.dtype() ? master : s.x({s.m()});
  args = {.param = param,
          .master = master,
          .grad = s.of_rows(),
          .m = s.of_rows(),
          .v = s.of_rows(),
          .scalars = s.filled(DType::float64, {num_adamw_scalars}),
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8};
}
SampleSizes usual_sizes(const AdamWArgs& /*args*/) { return usual_sizes_of_elements(); }

}  // namespace echelon
