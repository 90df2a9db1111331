#include "ops/gpu/joined_operations.h"

#include <algorithm>
#include <array>

namespace echelon::cuda {
namespace {

bool follows(const Tensor& next, const Tensor& x) {
  return next.dtype == x.dtype && next.data == x.data + x.num_bytes();
}

void extend(Tensor& x, const Tensor& next) { x = {x.data, x.dtype, {x.num_elements() + next.num_elements()}}; }

bool extends_segment(FillArgs& held, const FillArgs& args) {
  if (!follows(args.out, held.out)) return false;
  extend(held.out, args.out);
  return true;
}
bool extends_segment(RopeArgs& /*held*/, const RopeArgs& /*args*/) { return false; }
bool extends_segment(SumOfSquaresArgs& held, const SumOfSquaresArgs& args) {
  if (!follows(args.x, held.x)) return false;
  extend(held.x, args.x);
  return true;
}
/// Not if weight decay differs, or if each parameter draws its own random bits.
bool extends_segment(AdamWArgs& held, const AdamWArgs& args) {
  if (held.weight_decay != args.weight_decay || args.m.dtype != accumulate_dtype(args.param.dtype)) return false;
  constexpr Tensor AdamWArgs::*tensors[] = {&AdamWArgs::param, &AdamWArgs::master, &AdamWArgs::grad, &AdamWArgs::m,
                                            &AdamWArgs::v};
  for (const auto tensor : tensors)
    if (!follows(args.*tensor, held.*tensor)) return false;
  for (const auto tensor : tensors) extend(held.*tensor, args.*tensor);
  return true;
}

/// Whether one kernel can do both, one after the other or at the same time.
bool are_of_one_kind(const FillArgs& a, const FillArgs& b) {
  return a.out.dtype == b.out.dtype && a.value == b.value && !overlap(a.out, b.out);
}
bool are_of_one_kind(const RopeArgs& a, const RopeArgs& b) {
  const auto shape = [](const RopeArgs& args) {
    return std::array{args.x.size(0), args.x.size(1), args.x.size(3), args.first_position};
  };
  const auto angles = [](const RopeArgs& args) {
    return std::array{args.cos.data, args.sin.data, args.positions.data, args.frequencies.data};
  };
  return a.x.dtype == b.x.dtype && shape(a) == shape(b) && angles(a) == angles(b) && a.inverse == b.inverse &&
         a.scale == b.scale && a.growth == b.growth && a.period == b.period && a.num_pairs() == b.num_pairs() &&
         !overlap(a.y, b.x) && !overlap(a.x, b.y) && !overlap(a.y, b.y);
}
bool are_of_one_kind(const SumOfSquaresArgs& a, const SumOfSquaresArgs& b) {
  return a.x.dtype == b.x.dtype && a.sum.data == b.sum.data;
}
bool are_of_one_kind(const AdamWArgs& a, const AdamWArgs& b) {
  const auto dtypes = [](const AdamWArgs& x) {
    return std::array{x.param.dtype, x.master.dtype, x.grad.dtype, x.m.dtype, x.v.dtype};
  };
  const auto constants = [](const AdamWArgs& x) { return std::array{x.beta1, x.beta2, x.eps}; };
  return dtypes(a) == dtypes(b) && constants(a) == constants(b) && a.scalars.data == b.scalars.data &&
         (a.param.data == a.master.data) == (b.param.data == b.master.data) && a.noise.key == b.noise.key &&
         !overlap(a.master, b.master);
}

template <class Args>
bool extends_any(std::vector<Args>& held, const Args& args) {
  if (held.empty()) return false;
  const bool is_of_kind =
      std::all_of(held.begin(), held.end(), [&](const Args& each) { return are_of_one_kind(each, args); });
  if (!is_of_kind) return false;
  if (extends_segment(held.back(), args)) return true;
  if (held.size() == most_segments<Args>) return false;
  held.push_back(args);
  return true;
}

template <class Args>
std::int64_t one_for_any(const std::vector<Args>& held, Tensor Args::*processed) {
  for (const Args& args : held)
    if ((args.*processed).num_elements() > 0) return 1;
  return 0;
}

}  // namespace

bool JoinedOperations::extends(const FillArgs& args) { return extends_any(fills_, args); }
bool JoinedOperations::extends(const RopeArgs& args) { return extends_any(rotations_, args); }
bool JoinedOperations::extends(const SumOfSquaresArgs& args) { return extends_any(squares_, args); }
bool JoinedOperations::extends(const AdamWArgs& args) { return extends_any(updates_, args); }

std::int64_t num_kernels_of(const std::vector<FillArgs>& held) { return one_for_any(held, &FillArgs::out); }
std::int64_t num_kernels_of(const std::vector<RopeArgs>& held) { return one_for_any(held, &RopeArgs::y); }
std::int64_t num_kernels_of(const std::vector<AdamWArgs>& held) { return one_for_any(held, &AdamWArgs::master); }
std::int64_t num_kernels_of(const std::vector<SumOfSquaresArgs>& held) {
  return one_for_any(held, &SumOfSquaresArgs::x);
}

}  // namespace echelon::cuda
