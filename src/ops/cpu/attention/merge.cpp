// Attention to two parts of the keys merged by their log-sum-exps, row by row (formula: ops/operations/attention.h).
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention/merge.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class T, class O>
void merge(const MergeAttentionArgs& args, int num_threads) {
  using A = Accumulate<T>;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  const std::int64_t seq_len = args.part.size(1), H = args.part.size(2), C = args.part.size(3),
                     rows = args.part.size(0) * seq_len * H;
  divide({rows, 3 * C, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t h = row % H, i = row / H % seq_len, b = row / H / seq_len;
      A& lse = args.lse.as<A>()[(b * H + h) * seq_len + i];
      const A part_lse = args.part_lse.as<A>()[(b * H + h) * seq_len + i], max = std::max(lse, part_lse);
      if (lse == lowest && part_lse == lowest) continue;
      const A merged = max + std::log(std::exp(lse - max) + std::exp(part_lse - max));
      const auto of_out = hn::Set(Tag<A>(), std::exp(lse - merged)),
                 of_part = hn::Set(Tag<A>(), std::exp(part_lse - merged));
      const T* part = args.part.as<T>() + row * C;
      O* out = args.out.as<O>() + row * C;
      for_lanes<A>(0, C, [=](auto lanes, std::int64_t c) HWY_ATTR {
        lanes.store(hn::MulAdd(of_out, lanes.load(out + c), hn::Mul(of_part, lanes.load(part + c))), out + c);
      });
      lse = merged;
    }
  });
}

void MergeAttention(const MergeAttentionArgs& args, int num_threads) {
  visit_pair(args.part.dtype, args.out.dtype,
             [&](auto t, auto o) { merge<decltype(t), decltype(o)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(MergeAttention);

void CpuOps::compute(const MergeAttentionArgs& args) { HWY_DYNAMIC_DISPATCH(MergeAttention)(args, num_threads_); }

}  // namespace echelon
#endif
