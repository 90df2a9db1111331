// The order in which a thread computes tiles of queries. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_ORDER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_ORDER_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_ORDER_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_ORDER_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/mask-inl.h"

#include <array>
#include <optional>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr int ranges_per_thread = 8;  // of tiles, where a mask leaves some of them more keys than others

/// One of the tiles of queries that a thread computes.
struct QueryTile {
  std::int64_t b = 0, h = 0, kv_head = 0, first_query = 0;

  [[nodiscard]] bool has_keys_of(const QueryTile& other) const { return b == other.b && kv_head == other.kv_head; }
  [[nodiscard]] bool is_later_in_head(const QueryTile& other) const {
    return b == other.b && h == other.h && first_query > other.first_query;
  }
};

/// Which keys of a head a thread has packed, in a buffer that has a place for each of a block.
struct PackedKeys {
  QueryTile head{.b = -1};
  KeyRange keys;

  void forget() { head.b = -1; }

  /// `seen` are needed next. Tiles of a head are in ascending order, so most of them are packed already.
  void begin(const QueryTile& at, const KeyRange& seen) {
    if (!at.has_keys_of(head) || seen.first < keys.first || seen.first > keys.last) keys = {seen.first, seen.first};
    head = at;
  }
};

/// The tiles of all heads, head by head. The first tile of a head sees few keys and the last one many: a pair of tiles,
/// one from each end, is a unit of work.
class TileOrder {
 public:
  TileOrder(const Tensor& q, std::int64_t group, std::int64_t first_head)
      : B_(q.size(0)),
        H_(q.size(2)),
        group_(group),
        first_head_(first_head),
        num_tiles_((q.size(1) + tile_queries - 1) / tile_queries) {}

  struct Pairs {
    std::int64_t first, last;
  };
  [[nodiscard]] std::int64_t pairs_per_head() const { return (num_tiles_ + 1) / 2; }
  [[nodiscard]] std::int64_t num_pairs() const { return B_ * H_ * pairs_per_head(); }
  /// Of all heads that share a kv head.
  [[nodiscard]] Pairs pairs_of(std::int64_t b, std::int64_t kv_head) const {
    const std::int64_t first = std::max<std::int64_t>(0, kv_head * group_ - first_head_),
                       last = std::min(H_, (kv_head + 1) * group_ - first_head_);
    return {(b * H_ + first) * pairs_per_head(), (b * H_ + std::max(first, last)) * pairs_per_head()};
  }

  /// The first of a pair's two tiles.
  [[nodiscard]] QueryTile tile_of(std::int64_t pair) const {
    const std::int64_t head = pair / pairs_per_head(), h = head % H_;
    return {.b = head / H_,
            .h = h,
            .kv_head = (h + first_head_) / group_,
            .first_query = pair % pairs_per_head() * tile_queries};
  }

  /// Where shares of some pairs start, and where the last one ends: of even work, as work(b, first query) says of
  /// tiles.
  template <std::int64_t num_shares, class Work>
  [[nodiscard]] std::array<std::int64_t, static_cast<std::size_t>(num_shares) + 1> cut(const Pairs& pairs,
                                                                                       Work&& work) const {
    const auto work_of = [&](std::int64_t pair) HWY_ATTR {
      const QueryTile tile = tile_of(pair);
      const std::int64_t first = tile.first_query / tile_queries, last = num_tiles_ - 1 - first;
      return work(tile.b, tile.first_query) + (last > first ? work(tile.b, last * tile_queries) : 0);
    };
    std::int64_t all = 0, done = 0;
    for (std::int64_t pair = pairs.first; pair < pairs.last; ++pair) all += work_of(pair);
    std::array<std::int64_t, static_cast<std::size_t>(num_shares) + 1> cuts;
    cuts.fill(pairs.last);
    std::int64_t share = 0;
    for (std::int64_t pair = pairs.first; pair < pairs.last; ++pair) {
      for (; share < num_shares && done * num_shares >= all * share; ++share)
        cuts[static_cast<std::size_t>(share)] = pair;
      done += work_of(pair);
    }
    return cuts;
  }

  /// f(tile, the one after it) for the tiles of some pairs; after the last one comes `then`, or itself. Those of a head
  /// come in ascending order, so that each needs few keys that the one before it did not.
  template <class F>
  void visit(const Pairs& pairs, const std::optional<QueryTile>& then, F&& f) const {
    std::optional<QueryTile> at;
    const auto visit_next = [&](const QueryTile& next) HWY_ATTR {
      if (at) f(*at, next);
      at = next;
    };
    for (std::int64_t pair = pairs.first; pair < pairs.last;) {
      const std::int64_t first = pair % pairs_per_head(), last = std::min(pairs.last - pair + first, pairs_per_head());
      QueryTile tile = tile_of(pair);
      for (std::int64_t n = first; n < num_tiles_ - first;
           n = n + 1 == last ? std::max(last, num_tiles_ - last) : n + 1) {
        tile.first_query = n * tile_queries;
        visit_next(tile);
      }
      pair += last - first;
    }
    if (at) f(*at, then.value_or(*at));
  }

 private:
  std::int64_t B_, H_, group_, first_head_, num_tiles_;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
