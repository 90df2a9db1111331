// The sums over queries of a kv head: the gradients of its keys and values. Included once per instruction set
// (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_KEY_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_KEY_SUMS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_KEY_SUMS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_KEY_SUMS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/heads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// `count` parts of a sum, `stride` values apart.
template <class Sum>
struct Shares {
  const Sum* first;
  std::int64_t stride, count;
};

/// row[C] = scale times the sum of the shares
template <class Sum, class T>
HWY_INLINE void write_row(const Shares<Sum>& sums, Sum scale, std::int64_t C, T* row) {
  const auto factor = hn::Set(Tag<Sum>(), scale);
  for_lanes<Sum>(0, C, [=](auto lanes, std::int64_t c) HWY_ATTR {
    auto sum = lanes.load(sums.first + c);
    for (std::int64_t share = 1; share < sums.count; ++share)
      sum = hn::Add(sum, lanes.load(sums.first + share * sums.stride + c));
    lanes.store(hn::Mul(factor, sum), row + c);
  });
}

/// dk and dv of a block of keys, in memory [2, keys, padded C] of the caller.
template <class Format>
class KeySums {
  using Sum = typename Format::Sum;

 public:
  explicit KeySums(const Tensor& k) : keys_(packed_keys(k)), columns_(padded<Format>(k.size(3))) {}
  [[nodiscard]] std::int64_t capacity() const { return 2 * keys_ * columns_; }

  template <class S>
  [[nodiscard]] S* dk(S* sums, std::int64_t key) const {
    return sums + (key - first_) * columns_;
  }
  template <class S>
  [[nodiscard]] S* dv(S* sums, std::int64_t key) const {
    return sums + (keys_ + key - first_) * columns_;
  }

  /// What follows are the sums of other tiles, in memory that may hold anything.
  void begin(const KeyRange& block) {
    first_ = end_of_begun_ = block.first;
    last_ = block.last;
  }
  /// Whether the sums of these keys hold something.
  [[nodiscard]] bool is_begun(std::int64_t key) const { return key < end_of_begun_; }
  /// Zeros for keys before this one, that no query saw.
  void skip_to(std::int64_t key, Sum* sums) {
    if (key <= end_of_begun_) return;
    for (Sum* dx : {dk(sums, end_of_begun_), dv(sums, end_of_begun_)})
      std::fill_n(dx, (key - end_of_begun_) * columns_, Sum{0});
    end_of_begun_ = key;
  }
  void added_to(std::int64_t last_key) { end_of_begun_ = std::max(end_of_begun_, rounded_up(last_key, tile_keys)); }
  void end(Sum* sums) { skip_to(last_, sums); }

 private:
  std::int64_t keys_, columns_;
  std::int64_t first_ = 0, last_ = 0;  // of the block
  std::int64_t end_of_begun_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
