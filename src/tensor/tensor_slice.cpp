#include "tensor/tensor_slice.h"

namespace echelon {
namespace {

/// Elements per entry of the dim.
std::int64_t elements_within(const Sizes& sizes, int dim) {
  std::int64_t product = 1;
  for (int d = dim + 1; d < sizes.num_dims(); ++d) product *= sizes[d];
  return product;
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

Range TensorSlice::entries(int dim) const {
  const std::int64_t first = dim == dim_ ? offset_ / elements_within(global_sizes_, dim) : 0;
  return {first, sizes_[dim]};
}

}  // namespace echelon
