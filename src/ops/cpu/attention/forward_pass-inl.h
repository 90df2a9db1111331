// Causal attention, tile by tile with a running maximum and sum per query (Dao et al. 2022, arXiv:2205.14135). Tiles
// after the queries, or in earlier documents, are never computed. Of tiles on the diagonal only the blocks below it
// are. Where keys are many, a block of them is packed for a group of tiles of queries, whose sums wait for the next
// block. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_FORWARD_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_FORWARD_PASS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_FORWARD_PASS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_FORWARD_PASS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/heads-inl.h"
#include "ops/cpu/attention/matrix_tiles-inl.h"
#include "ops/cpu/attention/query_sums-inl.h"
#include "ops/cpu/attention/soft_cap-inl.h"
#include "ops/cpu/attention/softmax-inl.h"
#include "ops/cpu/scratch.h"

#include <numbers>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t tiles_at_once = 16;  // of queries, where keys are packed in blocks

/// The forward pass of one thread.
template <class Format, class T>
class Forward {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;

  static constexpr std::int64_t p_size = tile_keys / Format::per_number * tile_queries;

 public:
  Forward(const AttentionArgs& args, Scratch<Sum>& scratch) : args_(args) {
    const std::int64_t keys = packed_keys(args.k), width = packed_width<Format>(C_);
    const auto take = [&](std::int64_t count) { return reinterpret_cast<Number*>(scratch.take(count)); };
    k_ = take(keys * width);
    v_ = take(keys / Format::per_number * padded<Format>(C_));
    v_rows_ = take(Format::is_paired ? tile_keys * width : 0);
    q_ = take(tile_queries * width);
    q_transposed_ = take(width * tile_queries);
    softmax_.scale = static_cast<Sum>(factor());
    softmax_.scores = scratch.take(tile_keys * tile_queries);
    softmax_.p = Format::is_paired ? take(tile_keys / Format::per_number * tile_queries)
                                   : reinterpret_cast<Number*>(softmax_.scores);
    softmax_.rescale = scratch.take(2 * tile_queries);
    softmax_.first_keys = first_keys_ = softmax_.rescale + tile_queries;
    sums_ = scratch.take(most_tiles(args) * sums_of_tile(C_));
    tiles_.reserve(static_cast<std::size_t>(most_tiles(args)));
  }
  static std::int64_t capacity(const AttentionArgs& args) {
    const std::int64_t columns = padded<Format>(args.q.size(3));
    return 2 * packed_keys(args.k) * columns + (2 * tile_queries + tile_keys) * columns + 2 * tile_keys * tile_queries +
           2 * tile_queries + most_tiles(args) * sums_of_tile(args.q.size(3));
  }

  /// `next` will follow, or has the same place: then this is the last one.
  void attend(const QueryTile& at, const QueryTile& next) {
    tiles_.push_back(at);
    if (std::ssize(tiles_) == most_tiles(args_) || !next.is_later_in_head(at)) attend_group(next);
  }

 private:
  /// That are computed together.
  static std::int64_t most_tiles(const AttentionArgs& args) {
    return args.k.size(1) > attention_keys_at_once ? tiles_at_once : 1;
  }
  /// The sums, and the largest score and sum of each query.
  static std::int64_t sums_of_tile(std::int64_t C) { return QuerySums<Format>::capacity(C) + 2 * tile_queries; }

  /// Continues with a tile of the group.
  void select(std::size_t tile) {
    Sum* sums = sums_ + static_cast<std::int64_t>(tile) * sums_of_tile(C_);
    out_ = QuerySums<Format>(C_, sums);
    softmax_.max = sums + QuerySums<Format>::capacity(C_);
    softmax_.sum = softmax_.max + tile_queries;
  }
  [[nodiscard]] KeyRange seen_by(const QueryTile& at) const {
    return visible_.of(at.b, at.first_query, std::min(tile_queries, heads_.Tq - at.first_query));
  }

  void attend_group(const QueryTile& next) {
    KeyRange all;
    for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
      select(tile);
      softmax_.begin();
      const KeyRange seen = seen_by(tiles_[tile]);
      if (seen.is_empty()) {
        out_.clear();
        continue;
      }
      all = {all.is_empty() ? seen.first : all.first, seen.last};
    }
    const bool packs_all = heads_.Tk <= attention_keys_at_once;  // and keeps them for other tiles of the head
    for_blocks(packs_all ? KeyRange{0, heads_.Tk} : all, [&](const KeyRange& block) HWY_ATTR {
      block_ = block;
      if (!packs_all) packed_.forget();
      for (std::size_t tile = 0; tile < tiles_.size(); ++tile)
        attend_block(tile, tile + 1 < tiles_.size() ? tiles_[tile + 1] : next);
    });
    for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
      select(tile);
      finish(tiles_[tile]);
    }
    tiles_.clear();
  }

  void attend_block(std::size_t tile_of_group, const QueryTile& next) {
    const QueryTile& at = tiles_[tile_of_group];
    const std::int64_t first_query = at.first_query, count = std::min(tile_queries, heads_.Tq - first_query);
    const KeyRange all = seen_by(at), seen = all.within(block_);
    if (seen.is_empty()) return;
    select(tile_of_group);
    transpose<Format>(rows_of_tile<Format>(heads_.queries<const T>(args_.q, at), q_), C_, static_cast<Sum>(factor()),
                      q_transposed_);
    pack_keys(at, seen);
    look_ahead(at, next, seen);
    for (std::int64_t j = seen.first; j < seen.last; j += tile_keys) {
      const MaskedTile tile = visible_.tile({at.b, first_query, count}, {j, seen.last}, num_lanes<Sum>(), first_keys_);
      products_.multiply_over_C(tile, k_ + place(j) * packed_width<Format>(C_), q_transposed_, softmax_.scores);
      if (cap_ > 0) cap_scores<Sum>(tile, cap_, num_lanes<Sum>(), softmax_.scores);
      if (Format::has_matrices && !tile.is_full()) std::fill_n(softmax_.p, p_size, Number{0});
      const bool grew = softmax_.apply(tile);
      if (grew && j > all.first) out_.rescale(softmax_.rescale);
      products_.multiply_over_keys(tile, softmax_.p, v_ + place(j) / Format::per_number * padded<Format>(C_),
                                   out_.data(), j > all.first);
    }
  }

  [[nodiscard]] std::int64_t place(std::int64_t key) const { return key - block_.first; }

  /// The visible keys and values that are not packed yet.
  void pack_keys(const QueryTile& at, const KeyRange& seen) {
    packed_.begin(at, seen);
    std::int64_t& num_packed = packed_.keys.last;
    const HeadRows<const T> k = heads_.keys<const T>(args_.k, KvHead::of(at)),
                            v = heads_.keys<const T>(args_.v, KvHead::of(at));
    for (; num_packed < seen.last; num_packed += tile_keys) {
      pack<Format>(k.part(num_packed, tile_keys), tile_keys, k_ + place(num_packed) * packed_width<Format>(C_));
      Number* values = v_ + place(num_packed) / Format::per_number * padded<Format>(C_);
      pack<Format>(v.part(num_packed, tile_keys), tile_keys, Format::is_paired ? v_rows_ : values);
      if constexpr (Format::is_paired) pack_over_keys<Format>(v_rows_, C_, values);
    }
  }

  /// The output of this tile, and what the next tile reads.
  void look_ahead(const QueryTile& at, const QueryTile& next, const KeyRange& seen) {
    const auto add = [this](const auto& rows) { products_.ahead.add(rows.first, rows.count, rows.stride, C_); };
    products_.ahead.clear();
    const bool has_keys = next.has_keys_of(at);
    const std::int64_t first = has_keys ? packed_.keys.last : 0, most = tile_keys;
    add(heads_.queries<const T>(args_.q, next, most));
    for (const Tensor* x : {&args_.k, &args_.v}) add(heads_.keys<const T>(*x, KvHead::of(next)).part(first, most));
    add(heads_.queries<const T>(args_.out, at));
    products_.divide_ahead(2 * (seen.last - seen.first + tile_keys - 1) / tile_keys);
  }

  [[nodiscard]] double factor() const { return args_.scale * std::numbers::log2e; }

  HWY_INLINE void finish(const QueryTile& at) const {
    const HeadRows<T> out = heads_.queries<T>(args_.out, at);
    Sum* lse = args_.lse.as<Sum>() + (at.b * heads_.H + at.h) * heads_.Tq + at.first_query;
    const Tag<Sum> d;
    for (std::int64_t i = 0; i < out.count; i += num_lanes<Sum>()) softmax_.take_logarithm(i);
    std::copy_n(softmax_.max, out.count, lse);
    const Sum* rows = out_.rows();
    for (std::int64_t i = 0; i < out.count; ++i) {
      const Sum sum = softmax_.sum[i];
      const auto factor = hn::Set(d, sum == Sum{0} ? Sum{0} : Sum{1} / sum);
      const Sum* from = rows + i * padded<Format>(C_);
      T* into = out.first + i * out.stride;
      for_lanes<Sum>(0, C_, [=](auto lanes, std::int64_t c) HWY_ATTR {
        lanes.store(hn::Mul(lanes.load(from + c), factor), into + c);
      });
    }
  }

  const AttentionArgs& args_;
  Heads heads_{args_.q, args_.k};
  std::int64_t C_ = heads_.C;
  VisibleKeys visible_{args_.mask, args_.q, args_.k};
  PackedKeys packed_;
  TileProducts<Format> products_{.C = C_, .ahead = {}};
  KeyRange block_;  // of keys
  Number *k_, *v_;  // of one head, packed
  Number* v_rows_;  // one tile of values on the way to pairs
  Number *q_, *q_transposed_;
  RunningSoftmax<typename Format::Packing> softmax_;
  std::vector<QueryTile> tiles_;  // of the group
  Sum* sums_;                     // of each of them
  QuerySums<Format> out_{C_, nullptr};
  Sum* first_keys_;
  Sum cap_ = static_cast<Sum>(cap_of_scores<Format>(args_));
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
