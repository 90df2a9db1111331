// Where the vectors of a head are. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_HEADS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_HEADS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_HEADS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/order-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

struct KvHead {
  std::int64_t b, index;

  [[nodiscard]] static KvHead of(const QueryTile& at) { return {at.b, at.kv_head}; }
};

/// The sizes of q[B, Tq, H, C] and k[B, Tk, K, C], and of tensors like them.
struct Heads {
  Heads(const Tensor& q, const Tensor& k) : Tq(q.size(1)), Tk(k.size(1)), H(q.size(2)), K(k.size(2)), C(q.size(3)) {}

  /// At most so many of the queries of a tile and those after it.
  template <class T>
  [[nodiscard]] HeadRows<T> queries(const Tensor& x, const QueryTile& at, std::int64_t most = tile_queries) const {
    return {x.as<std::remove_const_t<T>>() + ((at.b * Tq + at.first_query) * H + at.h) * C,
            std::min(most, Tq - at.first_query), H * C, C};
  }
  template <class T>
  [[nodiscard]] HeadRows<T> keys(const Tensor& x, const KvHead& head) const {
    return {x.as<std::remove_const_t<T>>() + (head.b * Tk * K + head.index) * C, Tk, K * C, C};
  }

  std::int64_t Tq, Tk, H, K, C;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
