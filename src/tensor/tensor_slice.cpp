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

std::vector<SliceRectangle> rectangles_of(const TensorSlice& slice) {
  const Sizes& whole = slice.global_sizes();
  const int last = whole.num_dims() - 1;
  if (last != 0 && last != 1)
    throw Failure(fmt::format("a parameter {} has neither one nor two dims", to_string(whole)));
  const Range rows = last == 0 ? Range{0, 1} : slice.entries(0), columns = slice.entries(last);
  std::vector<SliceRectangle> rectangles;
  const std::int64_t end = slice.first() + slice.num_elements();
  for (std::int64_t at = slice.first(), count = 0; at < end; at += count) {
    const std::int64_t row = at / columns.count, column = at % columns.count;
    const std::int64_t num_rows = column == 0 ? std::max<std::int64_t>(1, (end - at) / columns.count) : 1;
    const std::int64_t num_columns = std::min(columns.count - column, end - at);
    count = num_rows * num_columns;
    const SliceRectangle found = {.rows = existing({rows.first + row, num_rows}, last == 0 ? 1 : whole[0]),
                                  .columns = existing({columns.first + column, num_columns}, whole[last]),
                                  .first = at - slice.first(),
                                  .stride = columns.count};
    if (found.num_elements() > 0) rectangles.push_back(found);
  }
  return rectangles;
}

Range TensorSlice::entries(int dim) const {
  const std::int64_t first = dim == dim_ ? offset_ / elements_within(global_sizes_, dim) : 0;
  return {first, sizes_[dim]};
}

}  // namespace echelon
