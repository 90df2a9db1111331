#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {

void check_sum_of_squares(Tensor x, Tensor sum) {
  const ArgumentChecker must("sum_of_squares");
  must.computes("x", x);
  must.scalars("sum", sum, 1);
}

void check(const GradientFactorArgs& args) {
  const ArgumentChecker must("gradient_factor");
  must.scalars("sum_of_squares", args.sum_of_squares, 1);
  must.scalars("num_targets", args.num_targets, 1);
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
  must.scalars("norm", args.norm, 1);
  must.scalars("factor", args.factor, 1);
}

void check(const AdamWArgs& args) {
  const ArgumentChecker must("adamw");
  must.computes("param", args.param);
  must.gradient("grad", args.grad, args.param.dtype);
  must.count("master", args.master, args.param.num_elements());
  const DType wide = accumulate_dtype(args.param.dtype);
  must.that(args.master.dtype == wide || is_remainder(args), "master", args.master,
            "have the accumulate_dtype of param, or int16 beside bfloat16");
  must.count("grad", args.grad, args.param.num_elements());
  must.count("m", args.m, args.master.num_elements());
  const bool may_be_coarse = wide == DType::float32 && args.m.dtype == DType::bfloat16;
  must.that(args.m.dtype == wide || may_be_coarse, "m", args.m,
            "have the accumulate_dtype of param, or bfloat16 beside float32");
  must.like("v", args.v, args.m);
  must.that(args.noise.row >= 1, "m", args.m, "lie in rows of at least one element");
  must.scalars("scalars", args.scalars, num_adamw_scalars);
}

}  // namespace echelon
