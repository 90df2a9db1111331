// The loops of a tile with a streamed factor. To be included within the namespace of one instruction set, which defines
// before:
//     most_vectors    of float32 sums in a row of a tile
//     vectors V       `width` sums; a unit of a (broadcast), `width` units of b (Row) and their multiply-add; a Source,
//                     of which a unit of b is `values_per_unit` values that follow each other along k (take, which also
//                     packs them); `rows_ahead`: from a tile's rows to those of the next one; `lone_rows` of one
//                     vector of sums, at most, where Source are units: those that registers hold.
// Not guarded: each instruction set has its own.

/// c[rows, vectors] (+)= a b.
template <class V, int rows, int vectors, Streamed streamed>
HWY_NOINLINE void multiply_streamed(const StreamedTile& args) {
  const StreamedTile t = args;  // a copy that no store to c can change
  const V of;
  constexpr int width = V::width;
  constexpr bool is_of_b = streamed != Streamed::a;
  typename V::Sums sums[rows][vectors];
  HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
      sums[i][v] = V::zero();
      if (is_of_b && t.start != nullptr) sums[i][v] = V::load(t.start + i * t.start_stride + v * width);
    }
  }
  constexpr int line = 16, interval = is_of_b ? StreamedKernels::burst_units : line, ahead = 8;  // values, units, units
  LinesAhead lines;
  if constexpr (is_of_b) lines = *t.ahead;
  const float* a = t.a;
  const std::int64_t a_stride = streamed == Streamed::lone_b ? StreamedKernels::lone_stride : t.a_stride;
  float* b = t.b;
  const auto* from = static_cast<const typename V::Source*>(t.source);
  for (std::int64_t first = 0; first < t.depth; first += interval) {
    if constexpr (is_of_b) lines.burst();
    if constexpr (streamed == Streamed::a) {
      HWY_UNROLL(8)
      for (int i = 0; i < rows; ++i) __builtin_prefetch(a + (V::rows_ahead(vectors) + i) * t.a_stride, 0, 2);
    }
    const std::int64_t last = std::min(t.depth, first + interval);
    HWY_UNROLL(4)
    for (std::int64_t l = first; l < last; ++l) {
      typename V::Row b_row[vectors];
      if constexpr (streamed == Streamed::b) {
        constexpr int per_line = 64 / sizeof(typename V::Source), per_unit = V::values_per_unit;
        HWY_UNROLL(4) for (int i = 0; i < vectors * width; i += per_line) {
          HWY_UNROLL(2)
          for (int j = 0; j < per_unit; ++j) __builtin_prefetch(from + (per_unit * ahead + j) * t.source_stride + i);
        }
        HWY_UNROLL(4)
        for (int v = 0; v < vectors; ++v) b_row[v] = of.take(from + v * width, t.source_stride, b + v * width);
        from += per_unit * t.source_stride;
      } else if constexpr (streamed == Streamed::lone_b) {
        static_assert(vectors == 1);
        __builtin_prefetch(from + ahead * t.source_stride);
        b_row[0] = V::row(from);
        from += t.source_stride;
      } else {
        HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) b_row[v] = V::row(b + v * width);
      }
      HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
        const auto a_unit = V::broadcast(a[i * a_stride]);
        HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) sums[i][v] = V::multiply_add(sums[i][v], a_unit, b_row[v]);
      }
      ++a;
      b += vectors * width;
    }
  }
  if constexpr (is_of_b) *t.ahead = lines;
  HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
      float* c = t.c + i * t.c_stride + v * width;
      V::store(c, t.adds ? V::add(V::load(c), sums[i][v]) : sums[i][v]);
    }
  }
}

template <class V, int rows, int vectors>
HWY_INLINE void add_unit(typename V::Sums (&sums)[rows][vectors], const float* a, const float* b) {
  typename V::Row b_row[vectors];
  HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) b_row[v] = V::row(b + v * V::width);
  HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
    const auto a_unit = V::broadcast(a[i]);
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) sums[i][v] = V::multiply_add(sums[i][v], a_unit, b_row[v]);
  }
}

/// c[rows, vectors] += a b, a by k. While units are multiplied, this tile's sums are fetched from the second cache, and
/// those of a later one into it: a few at once, since more would wait for each other.
template <class V, int rows, int vectors>
HWY_NOINLINE void add_streamed(const StreamedTile& args) {
  const StreamedTile t = args;
  constexpr int width = V::width, line = 16, columns = vectors * width, steps = columns > line ? 2 : 1;
  typename V::Sums sums[rows][vectors];
  HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) sums[i][v] = V::zero();
  }
  const float *a = t.a, *b = t.b, *own = t.c, *later = t.later_c;
  std::int64_t left = t.depth;
  HWY_UNROLL(8) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(2) for (int step = 0; step < steps; ++step) {
      HWY_UNROLL(4) for (int j = step * columns / steps; j < (step + 1) * columns / steps; j += line) {
        __builtin_prefetch(later + j, 0, 2);
        __builtin_prefetch(own + j);
      }
      if (left > 0) {
        add_unit<V>(sums, a, b);
        a += t.a_stride;
        b += columns;
        --left;
      }
    }
    later += t.c_stride;
    own += t.c_stride;
  }
  HWY_UNROLL(4) for (; left > 0; --left) {
    add_unit<V>(sums, a, b);
    a += t.a_stride;
    b += columns;
  }
  HWY_UNROLL(32) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
      float* c = t.c + i * t.c_stride + v * width;
      V::store(c, V::add(V::load(c), sums[i][v]));
    }
  }
}

using MultiplyStreamed = void (*)(const StreamedTile&);
using StreamedRows = std::make_integer_sequence<int, StreamedKernels::most_rows>;
using StreamedVectors = std::make_integer_sequence<int, most_vectors>;

template <class V, int vectors, Streamed streamed, int... rows_minus_one>
constexpr auto table_of(std::integer_sequence<int, rows_minus_one...> /*rows*/) {
  return std::array<MultiplyStreamed, sizeof...(rows_minus_one)>{
      &multiply_streamed<V, rows_minus_one + 1, vectors, streamed>...};
}
template <class V, int... rows_minus_one>
constexpr auto table_of_c(std::integer_sequence<int, rows_minus_one...> /*rows*/) {
  return std::array<MultiplyStreamed, sizeof...(rows_minus_one)>{&add_streamed<V, rows_minus_one + 1, most_vectors>...};
}
template <class V, int... vectors_minus_one>
constexpr auto tables_of_a(std::integer_sequence<int, vectors_minus_one...> /*vectors*/) {
  return std::array{table_of<V, vectors_minus_one + 1, Streamed::a>(StreamedRows())...};
}

/// OfSource: Whole, and takes units of the source.
template <class OfSource, class Whole, class Half>
void multiply_streamed_tile(const StreamedTile& t) {
  static constexpr auto of_a = tables_of_a<Whole>(StreamedVectors()),
                        halves_of_a = tables_of_a<Half>(StreamedVectors());
  static constexpr auto of_b = table_of<OfSource, most_vectors, Streamed::b>(StreamedRows());
  static constexpr auto of_packed_b = table_of<Whole, most_vectors, Streamed::packed_b>(StreamedRows());
  static constexpr auto of_lone_b =
      table_of<OfSource, 1, Streamed::lone_b>(std::make_integer_sequence<int, OfSource::lone_rows>());
  static constexpr auto of_c = table_of_c<Whole>(StreamedRows());
  const auto index = static_cast<std::size_t>(t.rows - 1), vectors = static_cast<std::size_t>(t.vectors - 1);
  switch (t.streamed) {
    case Streamed::a: return (t.is_half ? halves_of_a : of_a)[vectors][index](t);
    case Streamed::b: return of_b[index](t);
    case Streamed::packed_b: return of_packed_b[index](t);
    case Streamed::lone_b: return of_lone_b[index](t);
    case Streamed::c: return of_c[index](t);
  }
}
