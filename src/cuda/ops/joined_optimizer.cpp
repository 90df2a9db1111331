#include "cuda/ops/joined_optimizer.h"

namespace echelon::cuda {
namespace {

bool follows(const Tensor& next, const Tensor& x) {
  return next.dtype == x.dtype && next.data == x.data + x.num_bytes();
}

Tensor joined(const Tensor& x, const Tensor& next) {
  return {x.data, x.dtype, {x.num_elements() + next.num_elements()}};
}

}  // namespace

bool JoinedOptimizer::extends(const SumOfSquaresArgs& args) {
  if (!squares_ || squares_->sum.data != args.sum.data || !follows(args.x, squares_->x)) return false;
  squares_->x = joined(squares_->x, args.x);
  return true;
}

bool JoinedOptimizer::extends(const AdamWArgs& args) {
  if (!update_ || args.m.dtype != accumulate_dtype(args.param.dtype)) return false;
  AdamWArgs& held = *update_;
  const bool is_alike = held.scalars.data == args.scalars.data && held.beta1 == args.beta1 &&
                        held.beta2 == args.beta2 && held.eps == args.eps && held.weight_decay == args.weight_decay;
  constexpr Tensor AdamWArgs::*tensors[] = {&AdamWArgs::param, &AdamWArgs::master, &AdamWArgs::grad, &AdamWArgs::m,
                                            &AdamWArgs::v};
  for (const auto tensor : tensors)
    if (!is_alike || !follows(args.*tensor, held.*tensor)) return false;
  for (const auto tensor : tensors) held.*tensor = joined(held.*tensor, args.*tensor);
  return true;
}

}  // namespace echelon::cuda
