// The gradients of causal attention (formulas: ops/reference/attention.cpp), tile by tile, on several threads.
//
// Keys are taken in blocks. dk and dv of a block are sums over the queries of all heads that share its kv head. They
// are accumulated in float32 (float64) buffers of the block's size, in one thread; dq is kept in memory from block to
// block. Only if there are too few kv heads, several threads share one: each share of the tiles has separate sums,
// which are added in the order of the shares. Shares depend on sizes and the mask alone, so bits do not depend on the
// number of threads.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention/backward.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/attention/backward_pass-inl.h"
#include "ops/cpu/attention/order-inl.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

#include <optional>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t num_shares = 4;  // of the tiles of one kv head, where there are fewer kv heads than that

HWY_INLINE std::int64_t num_pairs(const AttentionBackwardArgs& args) {
  return mean_visible_pairs(args.mask, args.q, args.k);
}

template <class Format, class T>
void differentiate_all(const AttentionBackwardArgs& args, int num_threads) {
  using Sum = typename Format::Sum;
  using Pass = Backward<Format, T>;
  const std::int64_t num_kv_heads = args.q.size(0) * args.k.size(2), sums_size = KeySums<Format>(args.k).capacity();
  const KeyRange all{0, args.k.size(1)};
  const std::int64_t work = num_pairs(args) * args.q.size(3) / 8;
  const TileOrder order(args.q, args.group, args.first_head);
  divide({num_kv_heads, work, 1, num_threads, args.mask.has_ranges() ? ranges_per_thread : 1},
         [&](std::int64_t first, std::int64_t last) HWY_ATTR {
           Scratch<Sum> scratch(Pass::capacity(args) + sums_size);
           Pass backward(args, scratch);
           Sum* sums = scratch.take(sums_size);
           for (std::int64_t n = first; n < last; ++n) {
             const KvHead head{n / args.k.size(2), n % args.k.size(2)};
             const TileOrder::Pairs pairs = order.pairs_of(head.b, head.index);
             const TileOrder::Pairs later =
                 n + 1 < last ? order.pairs_of((n + 1) / args.k.size(2), (n + 1) % args.k.size(2)) : TileOrder::Pairs{};
             for_blocks(all, [&](const KeyRange& block) HWY_ATTR {
               const TileOrder::Pairs& after = block.last < all.last ? pairs : later;
               const auto then = after.first < after.last ? std::optional(order.tile_of(after.first)) : std::nullopt;
               backward.begin_sums(block);
               order.visit(pairs, then, [&](const QueryTile& at, const QueryTile& next) HWY_ATTR {
                 backward.differentiate(at, next, sums);
               });
               backward.end_sums(sums);
               backward.write_keys(head, block, {sums, sums_size, 1});
             });
           }
         });
}

/// One kv head after the other, each by all threads.
template <class Format, class T>
void differentiate_in_shares(const AttentionBackwardArgs& args, int num_threads) {
  using Sum = typename Format::Sum;
  using Pass = Backward<Format, T>;
  struct OfAllShares {};
  const std::int64_t num_kv_heads = args.q.size(0) * args.k.size(2), sums_size = KeySums<Format>(args.k).capacity();
  const std::int64_t work = num_pairs(args) * args.q.size(3) / 8 / num_shares;
  const TileOrder order(args.q, args.group, args.first_head);
  const VisibleKeys visible(args.mask, args.q, args.k);
  Scratch<Sum, OfAllShares> memory(num_shares * sums_size);
  Sum* sums = memory.take(num_shares * sums_size);
  for (std::int64_t n = 0; n < num_kv_heads; ++n) {
    const KvHead head{n / args.k.size(2), n % args.k.size(2)};
    const TileOrder::Pairs pairs = order.pairs_of(head.b, head.index);
    for_blocks({0, args.k.size(1)}, [&](const KeyRange& block) {
      const auto cuts = order.cut<num_shares>(pairs, [&](std::int64_t b, std::int64_t first_query) {
        const std::int64_t count = std::min(tile_queries, args.q.size(1) - first_query);
        const KeyRange seen = visible.of(b, first_query, count).within(block);
        return seen.is_empty() ? 0 : tile_keys + seen.size();
      });
      divide({num_shares, work, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
        Scratch<Sum> scratch(Pass::capacity(args));
        Pass backward(args, scratch);
        for (std::int64_t share = first; share < last; ++share) {
          Sum* own = sums + share * sums_size;
          backward.begin_sums(block);
          const auto* cut = cuts.data() + share;
          order.visit({cut[0], cut[1]}, {}, [&](const QueryTile& at, const QueryTile& next) HWY_ATTR {
            backward.differentiate(at, next, own);
          });
          backward.end_sums(own);
        }
      });
      divide({block.size(), 4 * num_shares * args.q.size(3), 1, num_threads},
             [&](std::int64_t first, std::int64_t last) HWY_ATTR {
               Scratch<Sum> scratch(Pass::capacity(args));
               Pass backward(args, scratch);
               backward.begin_sums(block);
               backward.write_keys(head, {block.first + first, block.first + last}, {sums, sums_size, num_shares});
             });
    });
  }
}

template <class Format, class T>
void choose_threads(const AttentionBackwardArgs& given, int num_threads) {
  using Sum = typename Format::Sum;
  struct OfQueries {};
  AttentionBackwardArgs args = given;
  if (std::is_same_v<T, Sum>) args.dq_sums = args.dq;
  const bool lacks_sums = needs_dq_sums(args.q, args.k) && !args.dq_sums.exists();
  Scratch<Sum, OfQueries> memory(lacks_sums ? args.q.num_elements() : 0);
  if (lacks_sums)
    args.dq_sums = Tensor(memory.take(args.q.num_elements()), accumulate_dtype(args.q.dtype), args.q.sizes);
  const bool few = args.q.size(0) * args.k.size(2) < num_shares;  // and worth the sums of all shares
  if (few && args.q.size(1) >= num_shares * 2 * tile_queries)
    return differentiate_in_shares<Format, T>(args, num_threads);
  differentiate_all<Format, T>(args, num_threads);
}

void AttentionBackward(const AttentionBackwardArgs& args, int num_threads,
                       [[maybe_unused]] ProductKernels bfloat16_products) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const bool may_pair = args.q.dtype == DType::bfloat16;
  if (may_pair && bfloat16_products == ProductKernels::native)
    return choose_threads<Pairs, bfloat16>(args, num_threads);
  if (may_pair && bfloat16_products == ProductKernels::amx)
    return choose_threads<MatrixTiles, bfloat16>(args, num_threads);
#endif
  visit_float(args.q.dtype,
              [&](auto t) { choose_threads<Plain<Accumulate<decltype(t)>>, decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AttentionBackward);

void CpuOps::compute(const AttentionBackwardArgs& args) {
  attention_pairs_.backward += args.q.size(2) * count_seen_pairs(args.mask, args.q, args.k);
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(args, num_threads_, bfloat16_products_);
}

}  // namespace echelon
#endif
