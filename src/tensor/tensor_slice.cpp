#include "tensor/tensor_slice.h"

#include "base/error.h"

namespace echelon {
namespace {

/// Elements per entry of the dim.
std::int64_t elements_within(const Sizes& sizes, int dim) {
  std::int64_t product = 1;
  for (int d = dim + 1; d < sizes.num_dims(); ++d) product *= sizes[d];
  return product;
}

/// The part of `range` inside a dim of `size` entries.
Range existing(Range range, std::int64_t size) {
  const std::int64_t first = std::min(range.first, size);
  return {first, std::min(range.count, size - first)};
}

}  // namespace

TensorSlice::TensorSlice(const Sizes& whole) : global_sizes_(whole), sizes_(whole), elements_{0, whole.num_elements()} {
  stride_ = row_ = filled_ = elements_.count;
}

TensorSlice::TensorSlice(const Sizes& whole, int dim, Range entries) : global_sizes_(whole), sizes_(whole), dim_(dim) {
  const std::int64_t within = elements_within(whole, dim);
  sizes_[dim] = entries.count;
  offset_ = entries.first * within;
  stride_ = whole[dim] * within;
  row_ = entries.count * within;
  filled_ = std::clamp<std::int64_t>(whole[dim] - entries.first, 0, entries.count) * within;
  elements_ = {0, sizes_.num_elements()};
}

TensorSlice::TensorSlice(const Sizes& whole, Range matrices, int dim, Range entries)
    : TensorSlice(whole, dim, entries) {
  sizes_[0] = matrices.count;
  first_matrix_ = matrices.first;
  offset_ += matrices.first * elements_within(whole, 0);
  elements_ = {0, sizes_.num_elements()};
}

TensorSlice::TensorSlice(const Sizes& whole, Range rows, Range columns) : global_sizes_(whole), sizes_(whole) {
  if (whole.num_dims() == 2) sizes_[0] = rows.count;
  sizes_[-1] = columns.count;
  offset_ = rows.first * whole[-1] + columns.first;
  stride_ = whole[-1];
  row_ = filled_ = columns.count;
  elements_ = {0, rows.count * columns.count};
}

TensorSlice TensorSlice::elements(Range range) const {
  TensorSlice part = *this;
  part.elements_ = {elements_.first + range.first, range.count};
  return part;
}

namespace {

/// Of a matrix [whole_rows, whole_columns]: the slice's elements in `range` of those that it has of `rows` and
/// `columns`.
struct MatrixOfSlice {
  Range rows, columns, range;
  std::int64_t whole_rows = 1, whole_columns = 1;
};

void add_rectangles(const MatrixOfSlice& of, std::int64_t first_of_range, std::vector<SliceRectangle>& rectangles) {
  const std::int64_t end = of.range.first + of.range.count, width = of.columns.count;
  for (std::int64_t at = of.range.first, count = 0; at < end; at += count) {
    const std::int64_t row = at / width, column = at % width;
    const std::int64_t num_rows = column == 0 ? std::max<std::int64_t>(1, (end - at) / width) : 1;
    const std::int64_t num_columns = std::min(width - column, end - at);
    count = num_rows * num_columns;
    const SliceRectangle found = {.rows = existing({of.rows.first + row, num_rows}, of.whole_rows),
                                  .columns = existing({of.columns.first + column, num_columns}, of.whole_columns),
                                  .first = first_of_range + at - of.range.first,
                                  .stride = width};
    if (found.num_elements() > 0) rectangles.push_back(found);
  }
}

/// Rows of each matrix of a stack: those of one are not next to those of the other.
void add_rows_of_stack(const TensorSlice& slice, std::vector<SliceRectangle>& rectangles) {
  const Sizes& whole = slice.global_sizes();
  const Range matrices = slice.entries(0), rows = slice.entries(1);
  const std::int64_t first = slice.first(), end = first + slice.num_elements(), of_one = rows.count * whole[2];
  for (std::int64_t i = of_one == 0 ? matrices.count : first / of_one; i < matrices.count && i * of_one < end; ++i) {
    const std::int64_t from = std::max(first, i * of_one), to = std::min(end, (i + 1) * of_one),
                       matrix = matrices.first + i;
    add_rectangles({.rows = {matrix * whole[1] + rows.first, rows.count},
                    .columns = {0, whole[2]},
                    .range = {from - i * of_one, to - from},
                    .whole_rows = (matrix + 1) * whole[1],
                    .whole_columns = whole[2]},
                   from - first, rectangles);
  }
}

}  // namespace

std::vector<SliceRectangle> rectangles_of(const TensorSlice& slice) {
  const Sizes& whole = slice.global_sizes();
  const int last = whole.num_dims() - 1;
  if (last < 0 || last > 2)
    throw Failure(fmt::format("a parameter {} has neither one nor two or three dims", to_string(whole)));
  std::vector<SliceRectangle> rectangles;
  if (last == 2 && slice.dim() == 1) {
    add_rows_of_stack(slice, rectangles);
    return rectangles;
  }
  const std::int64_t of_one = last == 2 ? whole[1] : 1;  // rows of a matrix in a stack
  const Range entries = last == 0 ? Range{0, 1} : slice.entries(0);
  add_rectangles({.rows = {entries.first * of_one, entries.count * of_one},
                  .columns = slice.entries(last),
                  .range = {slice.first(), slice.num_elements()},
                  .whole_rows = last == 0 ? 1 : whole[0] * of_one,
                  .whole_columns = whole[last]},
                 0, rectangles);
  return rectangles;
}

Range TensorSlice::entries(int dim) const {
  const std::int64_t of_matrices = first_matrix_ == 0 ? 0 : first_matrix_ * elements_within(global_sizes_, 0);
  if (dim == dim_) return {(offset_ - of_matrices) / elements_within(global_sizes_, dim), sizes_[dim]};
  return {dim == 0 ? first_matrix_ : 0, sizes_[dim]};
}

}  // namespace echelon
