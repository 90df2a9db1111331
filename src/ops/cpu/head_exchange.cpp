// Rows and heads in the order of context parallelism's exchanges: one pass over memory each, by whole rows. Threads
// divide the rows of the result.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/head_exchange.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// y[n, p] = the sum of `copies` rows of x, in their order.
template <class T>
void add_copies(const JoinHeadsArgs& args, int num_threads) {
  const std::int64_t N = args.y.size(0), P = args.y.size(1), W = args.y.size(2), copies = args.copies;
  divide({N * P, W * copies, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = args.x.as<T>() + (row % P * copies * N + row / P) * W;
      T* y = args.y.as<T>() + row * W;
      for_lanes<Accumulate<T>>(0, W, [=](auto lanes, std::int64_t i) HWY_ATTR {
        auto sum = lanes.load(x + i);
        for (std::int64_t r = 1; r < copies; ++r) sum = hn::Add(sum, lanes.load(x + r * N * W + i));
        lanes.store(sum, y + i);
      });
    }
  });
}

void JoinHeads(const JoinHeadsArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) { add_copies<decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace echelon {
namespace {

/// Row i of y is row `source(i)` of x, or zero if that is negative.
template <class Source>
void move_rows(const Tensor& y, const Tensor& x, int num_threads, Source source) {
  const std::int64_t W = y.size(-1), rows = W == 0 ? 0 : y.num_elements() / W, row_bytes = W * size_of(y.dtype);
  divide({rows, W, 1, num_threads}, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t from = source(i);
      std::byte* const to = y.data + i * row_bytes;
      if (from < 0)
        std::memset(to, 0, static_cast<std::size_t>(row_bytes));
      else
        std::memcpy(to, x.data + from * row_bytes, static_cast<std::size_t>(row_bytes));
    }
  });
}

}  // namespace

HWY_EXPORT(JoinHeads);

void CpuOps::compute(const SplitHeadsArgs& args) {
  const std::int64_t N = args.x.size(0), P = args.x.size(1), copies = args.copies;
  move_rows(args.y, args.x, num_threads_, [=](std::int64_t i) { return i % N * P + i / N / copies; });
}

void CpuOps::compute(const JoinHeadsArgs& args) {
  if (args.copies > 1) return HWY_DYNAMIC_DISPATCH(JoinHeads)(args, num_threads_);
  const std::int64_t N = args.y.size(0), P = args.y.size(1);
  move_rows(args.y, args.x, num_threads_, [=](std::int64_t i) { return i % P * N + i / P; });
}

void CpuOps::compute(const GatherRowsArgs& args) {
  const auto* index = args.index.as<std::int32_t>();
  move_rows(args.y, args.x, num_threads_, [=](std::int64_t i) { return std::int64_t{index[i]}; });
}

}  // namespace echelon
#endif
