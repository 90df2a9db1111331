// Causal attention on several threads.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention/forward.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/attention/forward_pass-inl.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class Format, class T>
void attend_all(const AttentionArgs& args, int num_threads) {
  using Sum = typename Format::Sum;
  const TileOrder order(args.q, args.group, args.first_head);
  if (order.num_pairs() == 0) return;
  const std::int64_t num_pairs = mean_visible_pairs(args.mask, args.q, args.k);
  const std::int64_t work = num_pairs * args.q.size(3) / 16 / order.pairs_per_head();
  divide({order.num_pairs(), work, 1, num_threads, args.mask.has_ranges() ? ranges_per_thread : 1},
         [&](std::int64_t first_pair, std::int64_t last_pair) HWY_ATTR {
           Scratch<Sum> scratch(Forward<Format, T>::capacity(args));
           Forward<Format, T> forward(args, scratch);
           order.visit({first_pair, last_pair}, {},
                       [&](const QueryTile& at, const QueryTile& next) HWY_ATTR { forward.attend(at, next); });
         });
}

void Attention(const AttentionArgs& args, int num_threads, [[maybe_unused]] ProductKernels bfloat16_products) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const bool may_pair = args.q.dtype == DType::bfloat16 && args.scale > 0;
  if (may_pair && bfloat16_products == ProductKernels::native) return attend_all<Pairs, bfloat16>(args, num_threads);
  if (may_pair && bfloat16_products == ProductKernels::amx) return attend_all<MatrixTiles, bfloat16>(args, num_threads);
#endif
  visit_float(args.q.dtype,
              [&](auto t) { attend_all<Plain<Accumulate<decltype(t)>>, decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Attention);

void CpuOps::compute(const AttentionArgs& args) {
  attention_pairs_.forward += args.q.size(2) * count_seen_pairs(args.mask, args.q, args.k);
  HWY_DYNAMIC_DISPATCH(Attention)(args, num_threads_, bfloat16_products_);
}

}  // namespace echelon
#endif
