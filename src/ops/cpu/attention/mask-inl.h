// Which keys the queries of a tile see: the causal mask, and documents. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_MASK_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_MASK_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_MASK_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/packing-inl.h"
#include "ops/operations/attention.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// A tile of queries and a tile of keys: query i sees the existing keys up to i + diagonal, from the first one of its
/// document on. Both counts may reach beyond the end, where packed rows are zero.
struct CausalTile {
  std::int64_t diagonal = 0;
  std::int64_t true_queries = 0;  // those that there are
  std::int64_t num_queries = 0;   // a multiple of the lanes
  std::int64_t true_keys = 0;     // those that exist, and that some query sees
  std::int64_t num_keys = 0;      // a multiple of block_rows
  std::int64_t queries_at_once = 1;
  bool is_cut_by_documents = false;  // some document starts after the tile's first key

  /// How many keys of the tile are at or before query i's position.
  [[nodiscard]] std::int64_t visible(std::int64_t i) const {
    return std::clamp<std::int64_t>(i + diagonal + 1, 0, true_keys);
  }
  /// Of `count` queries from i on: the keys, in whole blocks, that all of them see, and those that some of them see or
  /// of the others of their block.
  [[nodiscard]] std::int64_t blocks_seen_by_all(std::int64_t i) const {
    return is_cut_by_documents ? 0 : visible(i) / block_rows * block_rows;
  }
  [[nodiscard]] std::int64_t blocks_seen(std::int64_t i, std::int64_t count) const {
    return rounded_up(visible(std::max(i + count, rounded_up(i + 1, block_rows)) - 1), block_rows);
  }
  /// The first query that sees key r, or one of the keys that are processed with it.
  [[nodiscard]] std::int64_t first_seeing(std::int64_t r) const {
    return r >= true_keys ? num_queries
                          : std::clamp<std::int64_t>(r - diagonal, 0, num_queries) / queries_at_once * queries_at_once;
  }
};

/// Some of a head's keys.
struct KeyRange {
  std::int64_t first = 0, last = 0;  // the first is that of a tile

  [[nodiscard]] bool is_empty() const { return first >= last; }
};

/// Which of the queries from `query` on, one per lane, see key r. first_keys: of each query the first key of its
/// document, counted in the tile.
template <class A>
HWY_INLINE auto seeing(const CausalTile& tile, const A* first_keys, std::int64_t r, std::int64_t query) {
  const Tag<A> d;
  const std::int64_t first_query = r < tile.true_keys ? r - tile.diagonal : tile_queries;
  const auto is_before = hn::Ge(hn::Iota(d, static_cast<A>(query)), hn::Set(d, static_cast<A>(first_query)));
  return tile.is_cut_by_documents
             ? hn::And(is_before, hn::Ge(hn::Set(d, static_cast<A>(r)), hn::Load(d, first_keys + query)))
             : is_before;
}

/// Which keys the tiles of one attention see.
class VisibleKeys {
 public:
  VisibleKeys(const AttentionMask& mask, const Tensor& q, const Tensor& k)
      : Tq_(q.size(1)),
        Tk_(k.size(1)),
        diagonal_(mask.diagonal(Tq_, Tk_)),
        first_key_(mask.first_key),
        starts_(mask.starts.exists() ? mask.starts.as<std::int32_t>() : nullptr) {}

  /// Of `count` queries from first_query on: from a tile's start on; empty if they see none.
  [[nodiscard]] KeyRange of(std::int64_t b, std::int64_t first_query, std::int64_t count) const {
    const std::int64_t last = std::clamp<std::int64_t>(first_query + count + diagonal_, 0, Tk_);
    const std::int64_t first = first_of(b, first_query);
    return first < last ? KeyRange{first / tile_keys * tile_keys, last} : KeyRange{};
  }
  /// Those queries with the keys from `key` on, of the range of of(). Writes first_keys [tile_queries], if the tile
  /// needs it.
  template <class Sum>
  [[nodiscard]] CausalTile tile(std::int64_t b, std::int64_t first_query, std::int64_t count, const KeyRange& keys,
                                Sum* first_keys) const {
    const std::int64_t key = keys.first, num_keys = std::min(tile_keys, keys.last - key);
    CausalTile tile{.diagonal = first_query + diagonal_ - key,
                    .true_queries = count,
                    .true_keys = num_keys,
                    .num_keys = rounded_up(num_keys, block_rows)};
    tile.is_cut_by_documents = first_of(b, first_query + count - 1) > key;
    if (tile.is_cut_by_documents)
      for (std::int64_t i = 0; i < tile_queries; ++i)
        first_keys[i] = static_cast<Sum>(
            std::clamp<std::int64_t>(first_of(b, std::min(first_query + i, Tq_ - 1)) - key, 0, tile_keys));
    return tile;
  }

 private:
  [[nodiscard]] std::int64_t first_of(std::int64_t b, std::int64_t query) const {
    return starts_ == nullptr ? 0 : std::max<std::int64_t>(0, starts_[b * Tq_ + query] - first_key_);
  }

  std::int64_t Tq_, Tk_, diagonal_, first_key_;
  const std::int32_t* starts_;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
