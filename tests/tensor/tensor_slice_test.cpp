// Which elements of a whole tensor a slice has, against an enumeration of all indices.
#include "tensor/tensor_slice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace echelon {
namespace {

/// Of each element of a slice its index in the whole tensor; -1 in the padding.
using Indices = std::vector<std::int64_t>;

/// Every index of a tensor of three dims, of which the slice has rows, columns or neither: by the definition.
Indices indices_of(const Sizes& whole, const std::array<Range, 3>& entries) {
  Indices indices;
  for (std::int64_t i = 0; i < entries[0].count; ++i)
    for (std::int64_t j = 0; j < entries[1].count; ++j)
      for (std::int64_t k = 0; k < entries[2].count; ++k) {
        const std::int64_t at[] = {entries[0].first + i, entries[1].first + j, entries[2].first + k};
        const bool exists = at[0] < whole[0] && at[1] < whole[1] && at[2] < whole[2];
        indices.push_back(exists ? (at[0] * whole[1] + at[1]) * whole[2] + at[2] : -1);
      }
  return indices;
}

/// The same sizes with leading dims of one entry.
Sizes three_dims(const Sizes& sizes) {
  Sizes three = {1, 1, 1};
  for (int dim = 1; dim <= sizes.num_dims(); ++dim) three[-dim] = sizes[-dim];
  return three;
}

Indices indices_of_runs(const TensorSlice& slice) {
  Indices indices(static_cast<std::size_t>(slice.num_elements()), -1);
  slice.for_each_run([&](const Run& run) {
    EXPECT_GT(run.count, 0);
    for (std::int64_t i = 0; i < run.count; ++i) {
      EXPECT_EQ(indices.at(static_cast<std::size_t>(run.local + i)), -1);
      indices.at(static_cast<std::size_t>(run.local + i)) = run.global + i;
    }
  });
  return indices;
}

/// Of the slice and of every flat range of its elements.
void expect_indices(const TensorSlice& slice, const Indices& expected, const std::string& what) {
  ASSERT_EQ(slice.num_elements(), static_cast<std::int64_t>(expected.size())) << what;
  for (std::size_t first = 0; first <= expected.size(); ++first)
    for (std::size_t count = 0; first + count <= expected.size(); ++count) {
      const auto begin = static_cast<std::int64_t>(first), size = static_cast<std::int64_t>(count);
      const TensorSlice part = slice.elements({begin, size});
      const auto from = expected.begin() + static_cast<std::ptrdiff_t>(first);
      EXPECT_EQ(indices_of_runs(part), Indices(from, from + static_cast<std::ptrdiff_t>(count))) << what;
      // A range of a range.
      EXPECT_EQ(slice.elements({begin / 2, size + begin - begin / 2}).elements({begin - begin / 2, size}), part);
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t index = from[static_cast<std::ptrdiff_t>(i)];
        EXPECT_TRUE(index < 0 || part.index(i) == index) << what;
      }
    }
}

/// Of every flat range of a slice of a stack [3, 3, 4], the rectangles in the matrix of all rows.
void expect_rectangles(const TensorSlice& slice, const std::string& what) {
  const std::int64_t width = slice.global_sizes()[2], all = slice.num_elements();
  for (std::int64_t first = 0; first <= all; ++first)
    for (std::int64_t count = 0; first + count <= all; ++count) {
      const TensorSlice part = slice.elements({first, count});
      Indices indices(static_cast<std::size_t>(count), -1);
      for (const SliceRectangle& rectangle : rectangles_of(part))
        for (std::int64_t row = 0; row < rectangle.rows.count; ++row)
          for (std::int64_t column = 0; column < rectangle.columns.count; ++column)
            indices.at(static_cast<std::size_t>(rectangle.first + row * rectangle.stride + column)) =
                (rectangle.rows.first + row) * width + rectangle.columns.first + column;
      EXPECT_EQ(indices, indices_of_runs(part)) << what << ", elements " << count << " from " << first;
    }
}

TEST(TensorSlice, HasTheEntriesOfADim) {
  for (const Sizes& whole : {Sizes{5}, Sizes{3, 4}, Sizes{2, 3, 2}})
    for (int dim = 0; dim < whole.num_dims(); ++dim)
      for (std::int64_t first = 0; first <= whole[dim] + 1; ++first)
        for (std::int64_t count = 0; count <= whole[dim] + 1; ++count) {
          const Sizes three = three_dims(whole);
          std::array<Range, 3> entries = {Range{0, three[0]}, {0, three[1]}, {0, three[2]}};
          entries[static_cast<std::size_t>(dim + 3 - whole.num_dims())] = {first, count};
          const TensorSlice slice(whole, dim, {first, count});
          const std::string what = fmt::format("{} dim {}: {} from {}", to_string(whole), dim, count, first);
          expect_indices(slice, indices_of(three, entries), what);
          EXPECT_EQ(slice.global_sizes(), whole);
          EXPECT_EQ(slice.sizes()[dim], count);
          EXPECT_EQ(slice.dim(), dim);
          for (int each = 0; each < whole.num_dims(); ++each)
            EXPECT_EQ(slice.entries(each), (each == dim ? Range{first, count} : Range{0, whole[each]})) << what;
          EXPECT_EQ(slice.is_padded(), count > 0 && first + count > whole[dim]) << what;
        }
}

TEST(TensorSlice, HasEntriesOfSomeMatrices) {
  const Sizes whole = {3, 3, 4};
  for (std::int64_t matrix = 0; matrix <= 3; ++matrix)
    for (std::int64_t num_matrices = 0; matrix + num_matrices <= 3; ++num_matrices)
      for (const int dim : {1, 2})
        for (std::int64_t first = 0; first <= whole[dim]; ++first)
          for (std::int64_t count = 1; first + count <= whole[dim]; ++count) {
            std::array<Range, 3> entries = {Range{matrix, num_matrices}, {0, whole[1]}, {0, whole[2]}};
            entries[static_cast<std::size_t>(dim)] = {first, count};
            const TensorSlice slice(whole, entries[0], dim, {first, count});
            const std::string what =
                fmt::format("matrices {} from {}, dim {}: {} from {}", num_matrices, matrix, dim, count, first);
            expect_indices(slice, indices_of(whole, entries), what);
            EXPECT_EQ(slice.dim(), dim);
            for (int each = 0; each < 3; ++each)
              EXPECT_EQ(slice.entries(each), entries[static_cast<std::size_t>(each)]) << what;
            expect_rectangles(slice, what);
          }
}

TEST(TensorSlice, IsAllOfATensor) {
  for (const Sizes& whole : {Sizes{5}, Sizes{3, 4}, Sizes{2, 3, 2}}) {
    const Sizes three = three_dims(whole);
    const TensorSlice slice(whole);
    expect_indices(slice, indices_of(three, {Range{0, three[0]}, {0, three[1]}, {0, three[2]}}), to_string(whole));
    EXPECT_EQ(slice.sizes(), whole);
    EXPECT_LT(slice.dim(), 0);
    EXPECT_FALSE(slice.is_padded());
  }
}

TEST(TensorSlice, IsARectangle) {
  const Sizes whole = {4, 5};
  for (std::int64_t row = 0; row <= 4; ++row)
    for (std::int64_t num_rows = 0; row + num_rows <= 4; ++num_rows)
      for (std::int64_t column = 0; column <= 5; column += 2)
        for (std::int64_t num_columns = 0; column + num_columns <= 5; ++num_columns) {
          const Range rows = {row, num_rows}, columns = {column, num_columns};
          expect_indices({whole, rows, columns}, indices_of({1, 4, 5}, {Range{0, 1}, rows, columns}),
                         fmt::format("{} x {} at {}, {}", num_rows, num_columns, row, column));
        }
  expect_indices({{7}, {0, 1}, {2, 3}}, {2, 3, 4}, "of one dim");
}

// What operations read: neighbours stay neighbours up to the end of a row.
TEST(TensorSlice, TellsHowFarNeighboursGo) {
  const TensorSlice columns({4, 6}, 1, {2, 3}), rows({4, 6}, 0, {1, 2});
  const TensorSlice part = columns.elements({4, 8});
  for (std::int64_t i = 0; i < part.num_elements(); ++i) {
    const std::int64_t count = std::min(part.num_neighbours(i), part.num_elements() - i);
    for (std::int64_t k = 0; k < count; ++k) EXPECT_EQ(part.index(i + k), part.index(i) + k);
    EXPECT_TRUE(i + count == part.num_elements() || part.index(i + count) != part.index(i) + count);
  }
  EXPECT_GE(rows.num_neighbours(0), rows.num_elements());
  EXPECT_GE(TensorSlice().num_neighbours(5), 1'000'000);
  EXPECT_EQ(TensorSlice().index(5), 5);
}

}  // namespace
}  // namespace echelon
