// The layout of the file in which one rank writes its part of a checkpoint, known before anything is computed.
#pragma once

#include "checkpoint/state/digest.h"
#include "tensor/state_slice.h"

#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// A digest covers this much of a file's data; the last one, the rest.
inline constexpr std::int64_t block_bytes = 1 << 20;
/// Keys of the metadata of a file's header.
inline constexpr std::string_view block_bytes_key = "echelon.block_bytes", digests_key = "echelon.xxh3_128";

/// How long a file is, without its text: counted tensor by tensor.
class StateFileSize {
 public:
  /// The tensors of a slice. `visit(rectangle, first_byte)` for each.
  template <class Visit>
  void add(std::string_view state, std::string_view parameter, DType dtype, const TensorSlice& slice,
           const Visit& visit) {
    for (const SliceRectangle& rectangle : rectangles_of(slice)) {
      add(state, parameter, dtype, rectangle, slice.global_sizes().num_dims() == 1);
      visit(rectangle, data_bytes_ - rectangle.num_elements() * size_of(dtype));
    }
  }

  /// One tensor.
  void add(std::string_view state, std::string_view parameter, DType dtype, const SliceRectangle& rectangle,
           bool is_vector);

  [[nodiscard]] std::int64_t data_bytes() const { return data_bytes_; }
  /// Of the length before the JSON, the JSON and what aligns the data.
  [[nodiscard]] std::int64_t header_bytes() const;
  [[nodiscard]] std::int64_t num_bytes() const { return header_bytes() + data_bytes_; }

 private:
  std::int64_t data_bytes_ = 0;
  std::int64_t entry_letters_ = 0;  // of the header's JSON: all but the metadata
};

class StateFilePlan {
 public:
  /// A tensor of the file: a rectangle of one of the slices.
  struct Tensor {
    std::string name;
    DType dtype{};
    SliceRectangle rectangle;
    bool is_vector = false;
    std::int64_t first_byte = 0;  // of the data

    [[nodiscard]] std::int64_t num_bytes() const { return rectangle.num_elements() * size_of(dtype); }
  };

  /// Of slices without padding nothing is lost. Tensors have the order of the slices; a tensor whose values would not
  /// be aligned gets a few bytes before it, which are a tensor too.
  explicit StateFilePlan(const std::vector<StateSlice>& slices);

  /// The tensors of each slice.
  [[nodiscard]] const std::vector<std::vector<Tensor>>& tensors() const { return tensors_; }
  [[nodiscard]] std::int64_t header_bytes() const { return size_.header_bytes(); }
  [[nodiscard]] std::int64_t data_bytes() const { return size_.data_bytes(); }
  /// Of the whole file.
  [[nodiscard]] std::int64_t num_bytes() const { return size_.num_bytes(); }
  [[nodiscard]] std::size_t num_blocks() const {
    return static_cast<std::size_t>((data_bytes() + block_bytes - 1) / block_bytes);
  }
  /// header_bytes() bytes, whatever the digests. Throws Failure if it would be longer or shorter.
  [[nodiscard]] std::string header(const std::vector<Digest>& blocks) const;

 private:
  std::vector<std::vector<Tensor>> tensors_;
  StateFileSize size_;
};

}  // namespace echelon
