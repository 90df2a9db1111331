// Which keys the queries of a tile see. Included once per instruction set (Highway).

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

#include <array>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// A tile of queries and a tile of keys: of each query the keys that it sees, of each key the queries that see it. Both
/// counts may reach beyond the end, where packed rows are zero.
struct MaskedTile {
  std::int64_t true_queries = 0;  // those that there are, and that see some key
  std::int64_t num_queries = 0;   // a multiple of the lanes and of block_rows
  std::int64_t true_keys = 0;     // those that exist, and that some query sees
  std::int64_t num_keys = 0;      // a multiple of block_rows
  std::int64_t queries_at_once = 1;
  bool is_cut_at_start = false;  // whether a range starts after the tile's first key
  std::int64_t first_key = 0;    // a multiple of block_rows: matmuls leave out those before it
  // Keys before the start and the end of query i's range, and the first query whose range ends after key r: none
  // decreases.
  std::array<std::int16_t, tile_queries> starts = {}, ends = {};
  std::array<std::int16_t, tile_keys> first_queries = {};

  /// How many keys of the tile are before the end of query i's range, and before its start.
  [[nodiscard]] std::int64_t visible(std::int64_t i) const { return ends[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::int64_t hidden(std::int64_t i) const { return starts[static_cast<std::size_t>(i)]; }
  /// Whether matmuls read every query and key.
  [[nodiscard]] bool is_full() const {
    return visible(0) == tile_keys && num_queries == tile_queries && !is_cut_at_start;
  }
  /// Keys that some of `count` queries from i on see, or the others of their block: [first, last). All of those queries
  /// see [first_for_all, last_for_all). Whole blocks.
  struct Blocks {
    std::int64_t first, first_for_all, last_for_all, last;
  };
  [[nodiscard]] Blocks blocks_seen(std::int64_t i, std::int64_t count) const {
    const std::int64_t last = rounded_up(visible(std::max(i + count, rounded_up(i + 1, block_rows)) - 1), block_rows),
                       last_for_all = visible(i) / block_rows * block_rows;
    if (!is_cut_at_start) return {0, 0, last_for_all, last};
    const std::int64_t hidden_from_block = hidden(i / block_rows * block_rows),
                       first = std::min(hidden_from_block / block_rows * block_rows, last),
                       first_for_all = std::clamp(rounded_up(hidden(i + count - 1), block_rows), first, last);
    return {first, first_for_all, std::max(first_for_all, last_for_all), last};
  }
  /// The queries before the first that is hidden from key r and from the others of its block.
  [[nodiscard]] std::int64_t last_seeing(std::int64_t r) const {
    if (!is_cut_at_start) return num_queries;
    const auto* later = std::upper_bound(starts.data(), starts.data() + num_queries, r + block_rows - 1);
    return std::min(rounded_up(later - starts.data(), queries_at_once), num_queries);
  }
  /// The first query that sees key r, or one of the keys that are processed with it.
  [[nodiscard]] std::int64_t first_seeing(std::int64_t r) const {
    return r >= true_keys ? num_queries
                          : std::min(first_ending_after(r), num_queries) / queries_at_once * queries_at_once;
  }
  /// tile_queries where there is none.
  [[nodiscard]] std::int64_t first_ending_after(std::int64_t r) const {
    return first_queries[static_cast<std::size_t>(r)];
  }

  /// All keys: most tiles of a long sequence.
  void cut_nothing() {
    ends.fill(static_cast<std::int16_t>(true_keys));
    first_queries.fill(0);
  }
  /// Query i sees the keys up to i + diagonal.
  void cut_along(std::int64_t diagonal) {
    if (diagonal >= true_keys - 1 && true_keys == tile_keys) return cut_nothing();
    for (std::int64_t i = 0; i < tile_queries; ++i)
      ends[static_cast<std::size_t>(i)] =
          static_cast<std::int16_t>(std::clamp<std::int64_t>(i + diagonal + 1, 0, true_keys));
    for (std::int64_t r = 0; r < tile_keys; ++r)
      first_queries[static_cast<std::size_t>(r)] =
          static_cast<std::int16_t>(std::clamp<std::int64_t>(r - diagonal, 0, tile_queries));
  }
  /// Query i sees the keys before last[i] - key.
  void cut_at(const std::int32_t* last, std::int64_t key) {
    if (*last - key >= true_keys) return cut_nothing();
    for (std::int64_t i = 0; i < tile_queries; ++i)
      ends[static_cast<std::size_t>(i)] =
          static_cast<std::int16_t>(std::clamp<std::int64_t>(last[std::min(i, true_queries - 1)] - key, 0, true_keys));
    std::int16_t i = 0;
    for (std::int16_t r = 0; r < tile_keys; ++r) {
      while (i < tile_queries && ends[static_cast<std::size_t>(i)] <= r) ++i;
      first_queries[static_cast<std::size_t>(r)] = i;
    }
  }
};

/// Some of a head's keys.
struct KeyRange {
  std::int64_t first = 0, last = 0;  // the first is that of a tile

  [[nodiscard]] bool is_empty() const { return first >= last; }
  [[nodiscard]] std::int64_t size() const { return last - first; }
  [[nodiscard]] KeyRange within(const KeyRange& other) const {
    return {std::max(first, other.first), std::min(last, other.last)};
  }
};

/// Queries of sequence b, of one tile.
struct QueryRange {
  std::int64_t b = 0, first = 0, count = 0;
};

/// f(block) for the keys of a range, in as many blocks as there is room for.
template <class F>
HWY_INLINE void for_blocks(const KeyRange& keys, F&& f) {
  for (std::int64_t first = keys.first; first < keys.last; first += attention_keys_at_once)
    f(KeyRange{first, std::min(first + attention_keys_at_once, keys.last)});
}
/// The keys that scratch has room for.
HWY_INLINE std::int64_t packed_keys(const Tensor& k) {
  return rounded_up(std::min(k.size(1), attention_keys_at_once), tile_keys);
}

/// Which of the queries from `query` on, one per lane, see key r. first_keys: of each query the first key of its
/// document, counted in the tile.
template <class A>
HWY_INLINE auto seeing(const MaskedTile& tile, const A* first_keys, std::int64_t r, std::int64_t query) {
  const Tag<A> d;
  const std::int64_t first_query = r < tile.true_keys ? tile.first_ending_after(r) : tile_queries;
  const auto is_before = hn::Ge(hn::Iota(d, static_cast<A>(query)), hn::Set(d, static_cast<A>(first_query)));
  return tile.is_cut_at_start
             ? hn::And(is_before, hn::Ge(hn::Set(d, static_cast<A>(r)), hn::Load(d, first_keys + query)))
             : is_before;
}

/// Which keys the tiles of one attention see.
class VisibleKeys {
 public:
  VisibleKeys(const AttentionMask& mask, const Tensor& q, const Tensor& k)
      : Tq_(q.size(1)),
        Tk_(k.size(1)),
        begins_(mask.begin.exists() ? mask.begin.as<std::int32_t>() : nullptr),
        ends_(mask.end.exists() ? mask.end.as<std::int32_t>() : nullptr) {}

  /// Of `count` queries from first_query on: from a tile's start on; empty if they see none.
  [[nodiscard]] KeyRange of(std::int64_t b, std::int64_t first_query, std::int64_t count) const {
    const std::int64_t of_last =
        ends_ == nullptr ? first_query + count + Tk_ - Tq_ : ends_[b * Tq_ + first_query + count - 1];
    const std::int64_t last = std::clamp<std::int64_t>(of_last, 0, Tk_);
    const std::int64_t first = first_of(b, first_query);
    return first < last ? KeyRange{first / tile_keys * tile_keys, last} : KeyRange{};
  }
  /// Those queries with the keys from `key` on, of the range of of(); but for its first tile, which starts their sums,
  /// without the queries whose range starts after the tile. `multiple`: of num_queries. Writes first_keys
  /// [tile_queries], if the tile needs it.
  template <class Sum>
  [[nodiscard]] MaskedTile tile(const QueryRange& queries, const KeyRange& keys, std::int64_t multiple,
                                Sum* first_keys) const {
    const std::int64_t b = queries.b, first_query = queries.first, key = keys.first,
                       num_keys = std::min(tile_keys, keys.last - key);
    MaskedTile tile{.true_queries = queries.count, .true_keys = num_keys, .num_keys = rounded_up(num_keys, block_rows)};
    ends_ == nullptr ? tile.cut_along(first_query + Tk_ - Tq_ - key) : tile.cut_at(ends_ + b * Tq_ + first_query, key);
    if (first_of(b, first_query + queries.count - 1) > key) {
      tile.is_cut_at_start = true;
      if (key > first_of(b, first_query)) tile.true_queries = num_starting_before(queries, key + num_keys);
      for (std::int64_t i = 0; i < tile_queries; ++i) {
        const std::int64_t start = first_of(b, std::min(first_query + i, Tq_ - 1)) - key;
        tile.starts[static_cast<std::size_t>(i)] =
            static_cast<std::int16_t>(std::clamp<std::int64_t>(start, 0, tile_keys));
        first_keys[i] = static_cast<Sum>(tile.hidden(i));
      }
      tile.first_key = tile.hidden(0) / block_rows * block_rows;
    }
    tile.num_queries = rounded_up(tile.true_queries, std::max(multiple, block_rows));
    return tile;
  }

 private:
  [[nodiscard]] std::int64_t first_of(std::int64_t b, std::int64_t query) const {
    return begins_ == nullptr ? 0 : begins_[b * Tq_ + query];
  }
  /// Of the queries, those whose range starts before `key`: the first ones.
  [[nodiscard]] std::int64_t num_starting_before(const QueryRange& queries, std::int64_t key) const {
    const std::int32_t* first = begins_ + queries.b * Tq_ + queries.first;
    return std::lower_bound(first, first + queries.count, key) - first;
  }

  std::int64_t Tq_, Tk_;
  const std::int32_t *begins_, *ends_;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
