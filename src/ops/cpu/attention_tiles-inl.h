// Tiles of attention: packing, transposing and the causal mask. Included once per instruction set (Highway).
//
// Scores are kept transposed, [keys, queries]: a vector holds one key's scores for neighbouring queries, so the softmax
// needs no sum across lanes, and only the queries' tile has to be transposed, once for all keys.

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention_products-inl.h"
#include "ops/operations/attention.h"

#include <optional>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t tile_queries = 64;
constexpr std::int64_t tile_keys = 64;
// Fetched while the last tile of a head is multiplied: the first ones of the next are done too soon.
constexpr std::int64_t rows_of_next_head = 256;

/// Some of the vectors [C] of one head: `count` of them, `stride` values apart.
template <class T>
struct HeadRows {
  T* first = nullptr;
  std::int64_t count = 0, stride = 0, C = 0;

  /// At most so many of those from `from` on.
  [[nodiscard]] HeadRows part(std::int64_t from, std::int64_t most) const {
    return {first + from * stride, std::clamp<std::int64_t>(count - from, 0, most), stride, C};
  }
};

/// The columns of a row of sums: whole vectors.
template <class Format>
HWY_INLINE std::int64_t padded(std::int64_t C) {
  return rounded_up(C, num_lanes<typename Format::Sum>());
}
/// The Numbers of a packed row.
template <class Format>
HWY_INLINE std::int64_t packed_width(std::int64_t C) {
  return padded<Format>(C) / Format::per_number;
}

/// packed[num_rows, packed width] = x, zero in padding.
template <class Format, class T>
HWY_INLINE void pack(const HeadRows<const T>& x, std::int64_t num_rows, typename Format::Number* packed) {
  using Number = typename Format::Number;
  using Element = std::conditional_t<Format::is_paired, T, typename Format::Sum>;  // pairs are neighbours already
  const std::int64_t width = padded<Format>(x.C), row_numbers = packed_width<Format>(x.C),
                     lanes = num_lanes<typename Format::Sum>();
  auto* into = reinterpret_cast<Element*>(packed);
  for (std::int64_t row = 0; row < x.count; ++row, into += width) {
    const T* from = x.first + row * x.stride;
    if (std::is_same_v<Element, T> && x.C == width && row_numbers % lanes == 0) {
      const auto* numbers = reinterpret_cast<const Number*>(from);
      const Tag<Number> d;
      for (std::int64_t i = 0; i < row_numbers; i += lanes)
        hn::Store(hn::LoadU(d, numbers + i), d, reinterpret_cast<Number*>(into) + i);
      continue;
    }
    std::fill(into + x.C, into + width, Element{});
    if constexpr (std::is_same_v<Element, T>)
      std::memcpy(into, from, static_cast<std::size_t>(x.C) * sizeof(T));
    else
      for_lanes<Element>(0, x.C,
                         [=](auto part, std::int64_t i) HWY_ATTR { part.store(part.load(from + i), into + i); });
  }
  std::fill(into, into + (num_rows - x.count) * width, Element{});
}

/// Rows as matmuls need them: packed, or in place if that is the same.
template <class Number>
struct NumberRows {
  const Number* first = nullptr;
  std::int64_t stride = 0;
};

/// A tile of x, through `packed` where that is needed.
template <class Format, class T>
HWY_INLINE NumberRows<typename Format::Number> rows_of_tile(const HeadRows<const T>& x,
                                                            typename Format::Number* packed) {
  using Number = typename Format::Number;
  const bool is_packed =
      sizeof(T) * Format::per_number == sizeof(Number) && x.count == tile_queries && x.C == padded<Format>(x.C);
  if (is_packed && x.stride % Format::per_number == 0)
    return {reinterpret_cast<const Number*>(x.first), x.stride / Format::per_number};
  pack<Format>(x, tile_queries, packed);
  return {packed, packed_width<Format>(x.C)};
}

#if HWY_TARGET == HWY_SCALAR
template <class Format>
HWY_INLINE void transpose(const NumberRows<typename Format::Number>& x, std::int64_t C, typename Format::Sum factor,
                          typename Format::Number* transposed) {
  for (std::int64_t c = 0; c < C; ++c)
    for (std::int64_t row = 0; row < tile_queries; ++row)
      transposed[c * tile_queries + row] = factor * x.first[row * x.stride + c];
}
#else
/// transposed[packed width, tile_queries] = factor x[tile_queries, packed width]; pairs keep their factor for later.
/// Blocks of 16 bytes squared are transposed in registers.
template <class Format>
HWY_INLINE void transpose(const NumberRows<typename Format::Number>& x, std::int64_t C, typename Format::Sum factor,
                          typename Format::Number* transposed) {
  using Number = typename Format::Number;
  constexpr std::int64_t size = 16 / sizeof(Number);
  const hn::FixedTag<hwy::MakeUnsigned<Number>, size> d;
  const hn::FixedTag<std::uint64_t, 2> d64;
  const hn::FixedTag<Number, size> numbers;
  const std::int64_t width = packed_width<Format>(C);
  const auto put = [=](auto column, std::int64_t c, std::int64_t row) HWY_ATTR {
    auto values = hn::BitCast(numbers, column);
    if constexpr (!Format::is_paired) values = hn::Mul(values, hn::Set(numbers, factor));
    hn::Store(values, numbers, transposed + c * tile_queries + row);
  };
  for (std::int64_t c = 0; c < width; c += size)
    for (std::int64_t row = 0; row < tile_queries; row += size) {
      const auto load_row = [=](std::int64_t r) HWY_ATTR {
        return hn::BitCast(d, hn::LoadU(numbers, x.first + (row + r) * x.stride + c));
      };
      const auto r0 = load_row(0), r1 = load_row(1);
      const auto lower01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
                 upper01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      if constexpr (size == 2) {
        put(lower01, c, row);
        put(upper01, c + 1, row);
      } else {
        const auto r2 = load_row(2), r3 = load_row(3);
        const auto lower23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3)),
                   upper23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
        put(hn::InterleaveLower(d64, lower01, lower23), c, row);
        put(hn::InterleaveUpper(d64, lower01, lower23), c + 1, row);
        put(hn::InterleaveLower(d64, upper01, upper23), c + 2, row);
        put(hn::InterleaveUpper(d64, upper01, upper23), c + 3, row);
      }
    }
}
#endif

/// paired[num_rows / 2, padded C] of packed[num_rows, packed width], both of Pairs: rows `distance` apart in one
/// Number, so that sums run over rows.
template <class Format>
HWY_INLINE void pair_rows(const typename Format::Number* packed, std::int64_t num_rows, std::int64_t C,
                          std::int64_t distance, typename Format::Number* paired) {
  const Tag<typename Format::Number> d;
  const hn::Rebind<std::uint16_t, decltype(d)> halves;
  const std::int64_t width = padded<Format>(C), lanes = num_lanes<typename Format::Sum>();
  const auto* rows = reinterpret_cast<const std::uint16_t*>(packed);
  for (std::int64_t first = 0; first < num_rows; first += 2 * distance)
    for (std::int64_t row = first; row < first + distance; ++row, paired += width)
      for (std::int64_t c = 0; c < width; c += lanes) {
        const auto even = hn::PromoteTo(d, hn::LoadU(halves, rows + row * width + c));
        const auto odd = hn::PromoteTo(d, hn::LoadU(halves, rows + (row + distance) * width + c));
        hn::Store(hn::Or(even, hn::ShiftLeft<16>(odd)), d, paired + c);
      }
}

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

/// The matmuls that both passes need.
template <class Format>
struct TileProducts {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;
  std::int64_t C = 0;
  RowsAhead ahead;  // what a matmul prefetches

  /// c[keys, queries] = rows[keys, C] queries[C, queries]
  void multiply_over_C(const CausalTile& tile, const Number* rows, const Number* queries, Sum* c) {
    const std::int64_t width = packed_width<Format>(C), depth = (C + Format::per_number - 1) / Format::per_number;
    multiply(Product<Format>{.a = rows,
                             .a_row = width,
                             .a_depth = 1,
                             .b = queries,
                             .b_row = tile_queries,
                             .c = c,
                             .c_row = tile_queries,
                             .num_rows = tile.num_keys,
                             .num_columns = tile.num_queries},
             ahead, [=](std::int64_t key) {
               return Extent{.first_column = tile.first_seeing(key), .first = 0, .last = depth};
             });
  }

  /// c[queries, C] (+)= a[keys, queries]^T rows[keys, C]
  void multiply_over_keys(const CausalTile& tile, const Number* a, const Number* rows, Sum* c, bool accumulates) {
    const std::int64_t columns = padded<Format>(C);
    multiply(
        Product<Format>{.a = a,
                        .a_row = 1,
                        .a_depth = tile_queries,
                        .b = rows,
                        .b_row = columns,
                        .c = c,
                        .c_row = columns,
                        .num_rows = rounded_up(tile.true_queries, block_rows),
                        .num_columns = columns,
                        .accumulates = accumulates},
        ahead, [=](std::int64_t query) {
          return Extent{.last = (tile.visible(query + block_rows - 1) + Format::per_number - 1) / Format::per_number};
        });
  }
};

/// One of the tiles of queries that a thread computes.
struct QueryTile {
  std::int64_t b = 0, h = 0, kv_head = 0, first_query = 0;

  [[nodiscard]] bool has_keys_of(const QueryTile& other) const { return b == other.b && kv_head == other.kv_head; }
};

/// Some of a head's keys.
struct KeyRange {
  std::int64_t first = 0, last = 0;  // the first is that of a tile

  [[nodiscard]] bool is_empty() const { return first >= last; }
};

/// Which keys of a head a thread has packed, in a buffer that has a place for each.
struct PackedKeys {
  QueryTile head{.b = -1};
  KeyRange keys;

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
