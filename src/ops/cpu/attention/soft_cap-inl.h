// Soft caps of a tile of scores: before the softmax, score = cap tanh(score / cap), in the units that the softmax
// reads. In the backward pass dp - delta is multiplied by the derivative, so that ds = p (dp - delta) has it. Included
// once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_SOFT_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_SOFT_CAP_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_SOFT_CAP_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_SOFT_CAP_INL_H_
#endif
// clang-format on

#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/attention/mask-inl.h"

#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// The cap of scores in units of log 2, which pairs have without their scale; 0: none.
template <class Format, class Args>
double cap_of_scores(const Args& args) {
  return args.soft_cap * (Format::is_paired ? 1 / args.scale : std::numbers::log2e);
}

/// Of the keys that queries see; what others have is masked later.
template <class Sum>
HWY_NOINLINE void cap_scores(const MaskedTile& tile, Sum cap, std::int64_t step, Sum* scores) {
  const Tag<Sum> d;
  const auto caps = hn::Set(d, cap), inverse = hn::Set(d, Sum{1} / cap);
  for (std::int64_t i = 0; i < tile.num_queries; i += num_lanes<Sum>()) {
    const auto seen = tile.blocks_seen(i / step * step, step);
    for (std::int64_t r = seen.first; r < seen.last; ++r) {
      Sum* score = scores + r * tile_queries + i;
      hn::Store(hn::Mul(caps, hn::Tanh(d, hn::Mul(hn::Load(d, score), inverse))), d, score);
    }
  }
}

/// dp becomes delta + (dp - delta) (1 - (score / cap)^2), with capped scores.
template <class Sum>
HWY_NOINLINE void cap_gradients(const MaskedTile& tile, Sum cap, std::int64_t step, const Sum* scores, const Sum* delta,
                                Sum* dp) {
  const Tag<Sum> d;
  const auto inverse = hn::Set(d, Sum{1} / cap), one = hn::Set(d, Sum{1});
  for (std::int64_t i = 0; i < tile.num_queries; i += num_lanes<Sum>()) {
    const auto seen = tile.blocks_seen(i / step * step, step);
    for (std::int64_t r = seen.first; r < seen.last; ++r) {
      const std::int64_t at = r * tile_queries + i;
      const auto tanh = hn::Mul(hn::Load(d, scores + at), inverse), delta_i = hn::Load(d, delta + i);
      const auto rest = hn::Mul(hn::Sub(hn::Load(d, dp + at), delta_i), hn::NegMulAdd(tanh, tanh, one));
      hn::Store(hn::Add(delta_i, rest), d, dp + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
