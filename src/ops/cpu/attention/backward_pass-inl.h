// The gradients of causal attention (formulas: ops/reference/attention.cpp), with p recomputed from lse, tile by tile.
// Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_BACKWARD_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_BACKWARD_PASS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_BACKWARD_PASS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_BACKWARD_PASS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/key_sums-inl.h"
#include "ops/cpu/attention/matrix_tiles-inl.h"
#include "ops/cpu/attention/query_operand-inl.h"
#include "ops/cpu/attention/query_sums-inl.h"
#include "ops/cpu/attention/soft_cap-inl.h"
#include "ops/cpu/attention/softmax-inl.h"
#include "ops/cpu/scratch.h"

#include <limits>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

// Fetched while the last tile of a head is multiplied: the first ones of the next are done too soon.
constexpr std::int64_t rows_of_next_head = 256;

/// The backward pass of one thread. args.dq_sums are what needs_dq_sums() says, or dq itself.
template <class Format, class T>
class Backward {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;

  static constexpr std::int64_t p_size = tile_keys * tile_queries / Format::per_number;

 public:
  Backward(const AttentionBackwardArgs& args, Scratch<Sum>& scratch)
      : args_(args), q_(C_, scratch), dout_(C_, scratch), dq_(C_, scratch.take(QuerySums<Format>::capacity(C_))) {
    const std::int64_t keys = packed_keys(args.k), columns = padded<Format>(C_), width = packed_width<Format>(C_);
    const auto take = [&](std::int64_t count) { return reinterpret_cast<Number*>(scratch.take(count)); };
    k_ = take(keys * width);
    v_ = take(keys * width);
    k_over_keys_ = Format::is_paired ? take(keys / 2 * columns) : k_;
    softmax_.scale = static_cast<Sum>(factor());
    softmax_.p = scratch.take(tile_keys * tile_queries);
    softmax_.ds = scratch.take(tile_keys * tile_queries);
    const auto pairs_or = [&](Sum* plain) {
      return Format::is_paired ? take(tile_keys * tile_queries / 2) : reinterpret_cast<Number*>(plain);
    };
    softmax_.p_over_queries = pairs_or(softmax_.p);
    softmax_.ds_over_queries = pairs_or(softmax_.ds);
    softmax_.ds_over_keys = pairs_or(softmax_.ds);
    softmax_.lse = scratch.take(tile_queries);
    softmax_.delta = scratch.take(tile_queries);
    softmax_.first_keys = first_keys_ = scratch.take(tile_queries);
  }
  static std::int64_t capacity(const AttentionBackwardArgs& args) {
    const std::int64_t keys = packed_keys(args.k), columns = padded<Format>(args.q.size(3));
    return 3 * keys * columns + 6 * tile_queries * columns + QuerySums<Format>::capacity(args.q.size(3)) +
           4 * tile_keys * tile_queries + 3 * tile_queries;
  }

  /// What follows is about these keys, until end_sums.
  void begin_sums(const KeyRange& block) {
    block_ = block;
    packed_.forget();
    sums_.begin(block);
  }
  /// Keys that no query sees have sums of zero.
  void end_sums(Sum* sums) { sums_.end(sums); }

  /// The part of dq of a tile of queries that is due to the block of keys, and its part of dk and dv, added to `sums`.
  /// `next` will follow. Blocks come in ascending order.
  void differentiate(const QueryTile& at, const QueryTile& next, Sum* sums) {
    const std::int64_t first_query = at.first_query, count = std::min(tile_queries, heads_.Tq - first_query),
                       columns = padded<Format>(C_), width = packed_width<Format>(C_);
    const KeyRange all = visible_.of(at.b, first_query, count), seen = all.within(block_);
    const bool is_first = block_.first <= all.first, is_last = all.last <= block_.last;
    if (seen.is_empty() && (!all.is_empty() || block_.first > 0)) return;
    load_queries(at);
    if (!is_first) dq_.load(heads_.queries<const Sum>(args_.dq_sums, at));
    if (seen.is_empty())
      dq_.clear();
    else
      pack_keys(at, seen);
    look_ahead(at, next, seen);
    sums_.skip_to(seen.first, sums);
    for (std::int64_t j = seen.first; j < seen.last; j += tile_keys) {
      MaskedTile tile =
          visible_.tile({at.b, first_query, count}, {j, seen.last}, softmax_.queries_at_once(), first_keys_);
      // The zeros of keys that no query sees start a sum too.
      tile.num_keys = rounded_up(std::min(tile_keys, heads_.Tk - j), block_rows);
      tile.queries_at_once = Format::is_paired ? softmax_.queries_at_once() : 1;
      const bool adds = sums_.is_begun(j);
      if (!adds) tile.first_key = 0;
      products_.multiply_over_C(tile, k_ + place(j) * width, q_.over_C, softmax_.p);
      products_.multiply_over_C(tile, v_ + place(j) * width, dout_.over_C, softmax_.ds);
      if (Format::has_matrices && !tile.is_full())
        for (Number* x : {softmax_.p_over_queries, softmax_.ds_over_queries, softmax_.ds_over_keys})
          std::fill_n(x, p_size, Number{0});
      if (cap_ > 0) {
        cap_scores<Sum>(tile, cap_, softmax_.queries_at_once(), softmax_.p);
        cap_gradients<Sum>(tile, cap_, softmax_.queries_at_once(), softmax_.p, softmax_.delta, softmax_.ds);
      }
      softmax_.apply(tile);
      products_.multiply_over_queries(tile, softmax_.p_over_queries, dout_.over_queries, sums_.dv(sums, j), adds);
      products_.multiply_over_queries(tile, softmax_.ds_over_queries, q_.over_queries, sums_.dk(sums, j), adds);
      products_.multiply_over_keys(tile, softmax_.ds_over_keys, k_over_keys_ + place(j) / Format::per_number * columns,
                                   dq_.data(), j > all.first);
    }
    sums_.added_to(seen.last);
    if (is_last)
      write_queries(heads_.queries<T>(args_.dq, at), static_cast<Sum>(args_.scale));
    else
      write_queries(heads_.queries<Sum>(args_.dq_sums, at), Sum{1});
  }

  /// Some rows of dk and dv of a kv head.
  void write_keys(const KvHead& head, const KeyRange& rows, const Shares<Sum>& sums) const {
    const HeadRows<T> dk = heads_.keys<T>(args_.dk, head), dv = heads_.keys<T>(args_.dv, head);
    for (std::int64_t j = rows.first; j < rows.last; ++j) {
      write_row<Sum>({sums_.dk(sums.first, j), sums.stride, sums.count}, static_cast<Sum>(args_.scale), C_,
                     dk.first + j * dk.stride);
      write_row<Sum>({sums_.dv(sums.first, j), sums.stride, sums.count}, Sum{1}, C_, dv.first + j * dv.stride);
    }
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t key) const { return key - block_.first; }

  template <class Element>
  HWY_INLINE void write_queries(const HeadRows<Element>& dq, Sum factor) const {
    const Sum* rows = dq_.rows();
    for (std::int64_t i = 0; i < dq.count; ++i)
      write_row<Sum>({rows + i * padded<Format>(C_), 0, 1}, factor, C_, dq.first + i * dq.stride);
  }

  [[nodiscard]] double factor() const { return args_.scale * std::numbers::log2e; }

  /// The visible keys and values that are not packed yet.
  void pack_keys(const QueryTile& at, const KeyRange& seen) {
    packed_.begin(at, seen);
    std::int64_t& num_packed = packed_.keys.last;
    const std::int64_t width = packed_width<Format>(C_);
    const HeadRows<const T> k = heads_.keys<const T>(args_.k, KvHead::of(at)),
                            v = heads_.keys<const T>(args_.v, KvHead::of(at));
    for (; num_packed < seen.last; num_packed += tile_keys) {
      const std::int64_t row = place(num_packed);
      pack<Format>(k.part(num_packed, tile_keys), tile_keys, k_ + row * width);
      pack<Format>(v.part(num_packed, tile_keys), tile_keys, v_ + row * width);
      if constexpr (Format::is_paired)
        pack_over_keys<Format>(k_ + row * width, C_, k_over_keys_ + row / 2 * padded<Format>(C_));
    }
  }

  /// The dq of this tile, and what the next tile reads.
  void look_ahead(const QueryTile& at, const QueryTile& next, const KeyRange& seen) {
    const auto add = [this](const auto& rows) { products_.ahead.add(rows.first, rows.count, rows.stride, C_); };
    products_.ahead.clear();
    const bool has_keys = next.has_keys_of(at);
    const std::int64_t first = has_keys ? packed_.keys.last : 0, most = has_keys ? tile_keys : rows_of_next_head;
    for (const Tensor* x : {&args_.q, &args_.dout, &args_.out}) add(heads_.queries<const T>(*x, next, most));
    for (const Tensor* x : {&args_.k, &args_.v}) add(heads_.keys<const T>(*x, KvHead::of(next)).part(first, most));
    if (!has_keys || (next.h == at.h && next.first_query == at.first_query))
      for (const Tensor* x : {&args_.dk, &args_.dv})
        add(heads_.keys<const T>(*x, KvHead::of(at)).part(0, rows_of_next_head));
    add(heads_.queries<const T>(args_.dq, at));
    const std::int64_t num_tiles = (seen.last - seen.first + tile_keys - 1) / tile_keys;
    products_.divide_ahead(5 * num_tiles);
  }

  HWY_INLINE void load_queries(const QueryTile& at) {
    const HeadRows<const T> dout = heads_.queries<const T>(args_.dout, at),
                            out = heads_.queries<const T>(args_.out, at);
    q_.load(heads_.queries<const T>(args_.q, at), static_cast<Sum>(factor()));
    dout_.load(dout, Sum{1});
    Sum *lse = softmax_.lse, *delta = softmax_.delta;
    std::fill(lse, lse + tile_queries, std::numeric_limits<Sum>::infinity());  // queries beyond the end: p = 0
    std::fill(delta, delta + tile_queries, Sum{0});
    const std::int64_t row = (at.b * heads_.H + at.h) * heads_.Tq + at.first_query;
    for (std::int64_t i = 0; i < dout.count; ++i) {
      delta[i] = args_.delta.as<Sum>()[row + i] = dot(dout.first + i * dout.stride, out.first + i * out.stride);
      lse[i] = args_.lse.as<Sum>()[row + i] * static_cast<Sum>(std::numbers::log2e);
    }
  }

  [[nodiscard]] HWY_INLINE Sum dot(const T* x, const T* y) const {
    auto sum = hn::Zero(Tag<Sum>());
    for_lanes<Sum>(0, C_, [&](auto lanes, std::int64_t c) HWY_ATTR {
      sum = hn::MulAdd(lanes.load(x + c), lanes.load(y + c), sum);
    });
    return sum_of_lanes<Sum>(sum);
  }

  const AttentionBackwardArgs& args_;
  Heads heads_{args_.q, args_.k};
  std::int64_t C_ = heads_.C;
  VisibleKeys visible_{args_.mask, args_.q, args_.k};
  PackedKeys packed_;
  KeyRange block_;  // of keys
  KeySums<Format> sums_{args_.k};
  TileProducts<Format> products_{.C = C_, .ahead = {}};
  Number *k_, *v_, *k_over_keys_;  // a block of keys of one kv head; for sums over C, and over keys
  QueryOperand<Format> q_, dout_;
  QuerySums<Format> dq_;
  SoftmaxGradient<typename Format::Packing> softmax_;
  Sum* first_keys_;
  Sum cap_ = static_cast<Sum>(cap_of_scores<Format>(args_));
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
