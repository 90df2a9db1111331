// Biases, sums, copies, and the sum of squares for the norm of the gradients: one pass over memory each.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scratch.h"

#include <cstring>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// out[i] = kernel(lanes, i) for all elements.
template <class T, class Kernel>
HWY_INLINE void map(const Tensor& out, int num_threads, Kernel kernel) {
  T* result = out.as<T>();
  divide({out.num_elements(), 1, 64, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR {
    for_lanes<Accumulate<T>>(first, last,
                             [=](auto lanes, std::int64_t i) HWY_ATTR { lanes.store(kernel(lanes, i), result + i); });
  });
}

template <class T>
void add_bias_rows(const Tensor& y, const Tensor& bias, int num_threads) {
  const std::int64_t D = y.size(-1), N = D == 0 ? 0 : y.num_elements() / D;
  const T* b = bias.as<T>();
  divide({N, D, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      T* row = y.as<T>() + n * D;
      for_lanes<Accumulate<T>>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::Add(lanes.load(row + i), lanes.load(b + i)), row + i);
      });
    }
  });
}

template <class T, class G>
void add_column_sums(const Tensor& dy, const Tensor& dbias, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = dy.size(-1), N = D == 0 ? 0 : dy.num_elements() / D;
  const RowBlocks blocks(N);
  Scratch<A> scratch(blocks.count * D);
  A* block_sums = scratch.take(blocks.count * D);
  divide({blocks.count, D * blocks.rows_per_block, 1, num_threads},
         [&](std::int64_t first, std::int64_t last) HWY_ATTR {
           std::fill(block_sums + first * D, block_sums + last * D, A{0});
           for (std::int64_t block = first; block < last; ++block) {
             A* sums = block_sums + block * D;
             for (std::int64_t n = blocks.first(block); n < blocks.last(block); ++n) {
               const T* row = dy.as<T>() + n * D;
               for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
                 lanes.store(hn::Add(lanes.load(sums + i), lanes.load(row + i)), sums + i);
               });
             }
           }
         });
  add_block_sums<A>({block_sums, blocks.count, D, D}, dbias.as<G>());
}

template <class T>
double sum_squares_of(const T* x, std::int64_t count) {
  auto sum = hn::Zero(Tag<double>());
  for_lanes<double>(0, count, [&](auto lanes, std::int64_t i) HWY_ATTR {
    const auto v = lanes.load(x + i);
    sum = hn::MulAdd(v, v, sum);
  });
  return sum_of_lanes<double>(sum);
}

void AddBias(const Tensor& y, const Tensor& bias, int num_threads) {
  visit_float(y.dtype, [&](auto t) { add_bias_rows<decltype(t)>(y, bias, num_threads); });
}

void BiasBackward(const Tensor& dy, const Tensor& dbias, int num_threads) {
  visit_pair(dy.dtype, dbias.dtype,
             [&](auto t, auto g) { add_column_sums<decltype(t), decltype(g)>(dy, dbias, num_threads); });
}

void Add(const Tensor& out, const Tensor& a, const Tensor& b, int num_threads) {
  visit_addends(a.dtype, b.dtype, [&](auto t, auto u) HWY_ATTR {
    using T = decltype(t);
    const T* x = a.as<T>();
    const auto* y = b.as<decltype(u)>();
    map<T>(out, num_threads,
           [=](auto lanes, std::int64_t i) HWY_ATTR { return hn::Add(lanes.load(x + i), lanes.load(y + i)); });
  });
}

void Scale(const Tensor& x, double factor, int num_threads) {
  visit_float(x.dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    using A = Accumulate<T>;
    const T* numbers = x.as<T>();
    map<T>(x, num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
      return hn::Mul(lanes.load(numbers + i), hn::Set(Tag<A>(), static_cast<A>(factor)));
    });
  });
}

void SoftCap(const SoftCapArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    using A = Accumulate<T>;
    const T* numbers = args.x.as<T>();
    const A cap = static_cast<A>(args.cap), inverse = A{1} / cap;
    map<T>(args.x, num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const Tag<A> d;
      return hn::Mul(hn::Set(d, cap), hn::Tanh(d, hn::Mul(lanes.load(numbers + i), hn::Set(d, inverse))));
    });
  });
}

void SoftCapBackward(const SoftCapBackwardArgs& args, int num_threads) {
  visit_pair(args.dx.dtype, args.y.dtype, [&](auto t, auto l) HWY_ATTR {
    using T = decltype(t);
    using A = Accumulate<T>;
    const T* dx = args.dx.as<T>();
    const auto* y = args.y.as<decltype(l)>();
    const A inverse = A{1} / static_cast<A>(args.cap);
    map<T>(args.dx, num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const Tag<A> d;
      const auto tanh = hn::Mul(lanes.load(y + i), hn::Set(d, inverse));
      return hn::Mul(lanes.load(dx + i), hn::NegMulAdd(tanh, tanh, hn::Set(d, A{1})));
    });
  });
}

void Clip(const ClipArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    using A = Accumulate<T>;
    const T* numbers = args.x.as<T>();
    const A limit = to<A>(to<T>(args.limit));
    map<T>(args.x, num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto x = lanes.load(numbers + i), most = hn::Set(Tag<A>(), limit);
      return hn::IfThenElse(hn::Gt(hn::Abs(x), most), hn::CopySign(most, x), x);
    });
  });
}

void ClipBackward(const ClipBackwardArgs& args, int num_threads) {
  visit_float(args.dx.dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    using A = Accumulate<T>;
    const T *dx = args.dx.as<T>(), *x = args.x.as<T>();
    const A limit = to<A>(to<T>(args.limit));
    map<T>(args.dx, num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
      return hn::IfThenElseZero(hn::Lt(hn::Abs(lanes.load(x + i)), hn::Set(Tag<A>(), limit)), lanes.load(dx + i));
    });
  });
}

void Convert(const Tensor& out, const Tensor& x, int num_threads) {
  visit_float(x.dtype, [&](auto from) {
    visit_float(out.dtype, [&](auto into) HWY_ATTR {
      using From = decltype(from);
      using To = decltype(into);
      using A = std::conditional_t<std::is_same_v<From, double>, double, float>;  // loads exactly, rounds once
      const From* source = x.as<From>();
      To* target = out.as<To>();
      divide({x.num_elements(), 1, 64, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR {
        for_lanes<A>(first, last,
                     [=](auto lanes, std::int64_t i) HWY_ATTR { lanes.store(lanes.load(source + i), target + i); });
      });
    });
  });
}

void SumOfSquares(const Tensor& x, const Tensor& sum, int num_threads) {
  constexpr std::int64_t block = 1 << 15;  // summed by itself: the same sums on any number of threads
  const std::int64_t count = x.num_elements(), num_blocks = (count + block - 1) / block;
  std::vector<double> sums(static_cast<std::size_t>(num_blocks));
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    divide({num_blocks, block, 1, num_threads}, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t b = first; b < last; ++b)
        sums[static_cast<std::size_t>(b)] = sum_squares_of(x.as<T>() + b * block, std::min(block, count - b * block));
    });
  });
  double total = 0;
  for (const double part : sums) total += part;
  sum.as<double>()[0] += total;
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AddBias);
HWY_EXPORT(BiasBackward);
HWY_EXPORT(Add);
HWY_EXPORT(Scale);
HWY_EXPORT(SoftCap);
HWY_EXPORT(SoftCapBackward);
HWY_EXPORT(Clip);
HWY_EXPORT(ClipBackward);
HWY_EXPORT(Convert);
HWY_EXPORT(SumOfSquares);

void CpuOps::compute(const AddBiasArgs& args) { HWY_DYNAMIC_DISPATCH(AddBias)(args.y, args.bias, num_threads_); }

void CpuOps::compute(const BiasBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(BiasBackward)(args.dy, args.dbias, num_threads_);
}

void CpuOps::compute(const AddArgs& args) { HWY_DYNAMIC_DISPATCH(Add)(args.out, args.a, args.b, num_threads_); }

void CpuOps::compute(const ScaleArgs& args) { HWY_DYNAMIC_DISPATCH(Scale)(args.x, args.factor, num_threads_); }

void CpuOps::compute(const SoftCapArgs& args) { HWY_DYNAMIC_DISPATCH(SoftCap)(args, num_threads_); }

void CpuOps::compute(const SoftCapBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(SoftCapBackward)(args, num_threads_); }

void CpuOps::compute(const ClipArgs& args) { HWY_DYNAMIC_DISPATCH(Clip)(args, num_threads_); }

void CpuOps::compute(const ClipBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(ClipBackward)(args, num_threads_); }

void CpuOps::compute(const CopyArgs& args) {
  const Tensor &out = args.out, &x = args.x;
  if (out.dtype != x.dtype) return HWY_DYNAMIC_DISPATCH(Convert)(out, x, num_threads_);
  divide({x.num_bytes(), 1, 4096, num_threads_}, [&](std::int64_t first, std::int64_t last) {
    std::memmove(out.data + first, x.data + first, static_cast<std::size_t>(last - first));
  });
}

void CpuOps::compute(const FillArgs& args) {
  const Tensor& out = args.out;
  const auto fill_as = [&]<class T>(T number) {
    divide({out.num_elements(), 1, 64, num_threads_},
           [&](std::int64_t first, std::int64_t last) { std::fill(out.as<T>() + first, out.as<T>() + last, number); });
  };
  if (out.dtype == DType::int32) return fill_as(static_cast<std::int32_t>(args.value));
  if (out.dtype == DType::int16) return fill_as(static_cast<std::int16_t>(args.value));
  visit_float(out.dtype, [&](auto t) { fill_as(to<decltype(t)>(args.value)); });
}

void CpuOps::compute(const SumOfSquaresArgs& args) {
  HWY_DYNAMIC_DISPATCH(SumOfSquares)(args.x, args.sum, num_threads_);
}

}  // namespace echelon
#endif
