// A part of a tensor that is spread over ranks, files or operations: which elements of the whole tensor it has. It is
// rows of equal length at equal distances in the whole tensor, and of the elements of these rows a flat range.
#pragma once

#include "tensor/tensor.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace echelon {

/// [first, first + count).
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Range&) const = default;
};

/// The elements [local, local + count) of a slice are [global, global + count) of the whole tensor.
struct Run {
  std::int64_t local = 0, global = 0, count = 0;
  bool operator==(const Run&) const = default;
};

class TensorSlice {
 public:
  /// No elements; index(i) is i.
  TensorSlice() = default;
  /// All of a tensor.
  explicit TensorSlice(const Sizes& whole);
  /// The given entries of one dim. Entries past the dim's size are padding.
  TensorSlice(const Sizes& whole, int dim, Range entries);
  /// The given entries of a dim of three, of some matrices of a stack. No padding.
  TensorSlice(const Sizes& whole, Range matrices, int dim, Range entries);
  /// Rows and columns of a matrix, both without padding. A tensor of one dim is one row.
  TensorSlice(const Sizes& whole, Range rows, Range columns);

  /// A flat range of this slice's elements.
  [[nodiscard]] TensorSlice elements(Range range) const;

  [[nodiscard]] const Sizes& global_sizes() const { return global_sizes_; }
  /// Of the rows, padding included, whatever range of their elements the slice has.
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  [[nodiscard]] std::int64_t num_elements() const { return elements_.count; }
  /// The dim of which the slice was given some entries, even if these are all; -1: none. Of a stack it is the one of
  /// its matrices, where they are given, too.
  [[nodiscard]] int dim() const { return dim_; }
  /// The slice's entries of a dim, padding included.
  [[nodiscard]] Range entries(int dim) const;
  [[nodiscard]] constexpr bool is_padded() const { return filled_ < row_; }

  // Row r is row() elements of the whole tensor from offset() + r * stride() on. What a dim lacks of it is padding.
  [[nodiscard]] constexpr std::int64_t offset() const { return offset_; }
  [[nodiscard]] constexpr std::int64_t stride() const { return stride_; }
  [[nodiscard]] constexpr std::int64_t row() const { return row_; }
  /// Where in these rows the slice's flat range starts.
  [[nodiscard]] constexpr std::int64_t first() const { return elements_.first; }

  /// The index of element i in the whole tensor, or in padding what it would be if the row continued.
  [[nodiscard]] constexpr std::int64_t index(std::int64_t i) const {
    const std::int64_t at = elements_.first + i;
    return offset_ + (row_ == stride_ ? at : at / row_ * stride_ + at % row_);
  }
  /// How many elements from element i on are neighbours in the whole tensor, padding included.
  [[nodiscard]] constexpr std::int64_t num_neighbours(std::int64_t i) const {
    return row_ == stride_ && !is_padded() ? std::numeric_limits<std::int64_t>::max()
                                           : row_ - (elements_.first + i) % row_;
  }

  /// visit(Run) for the elements that exist, in order.
  template <class F>
  void for_each_run(F&& visit) const {
    for (std::int64_t i = 0, count = 0; i < elements_.count; i += count) {
      count = std::min(elements_.count - i, num_neighbours(i));
      const std::int64_t num_filled = is_padded() ? filled_ - (elements_.first + i) % row_ : count;
      if (num_filled > 0) visit(Run{i, index(i), std::min(count, num_filled)});
    }
  }

  bool operator==(const TensorSlice&) const = default;

 private:
  Sizes global_sizes_, sizes_;
  int dim_ = -1;
  std::int64_t first_matrix_ = 0;
  std::int64_t offset_ = 0, stride_ = 1, row_ = 1, filled_ = 1;
  Range elements_;
};

/// Rows and columns of a whole matrix that a slice has, without padding. A tensor of one dim is one row, and of one of
/// three dims, which is a stack of matrices, the rows follow each other.
struct SliceRectangle {
  Range rows, columns;
  std::int64_t first = 0;   // element of the slice where the rectangle starts
  std::int64_t stride = 0;  // from there to the start of its next row

  [[nodiscard]] std::int64_t num_elements() const { return rows.count * columns.count; }
  bool operator==(const SliceRectangle&) const = default;
};

/// The end of a row, whole rows and the start of a row: at most three, none of them empty; of a stack of which each
/// matrix gives some of its rows, so many for each matrix. Throws Failure for tensors of more than three dims.
[[nodiscard]] std::vector<SliceRectangle> rectangles_of(const TensorSlice& slice);

}  // namespace echelon
