// The file in which one rank writes its part of a checkpoint: safetensors, planned to the byte before anything is
// computed. docs/reference/checkpoints.md describes it.
#pragma once

#include "checkpoint/state/digest.h"
#include "files/file.h"
#include "tensor/state_slice.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

namespace echelon {

/// A digest covers this much of a file's data; the last one, the rest.
inline constexpr std::int64_t block_bytes = 1 << 20;
/// Keys of the metadata of a file's header.
inline constexpr std::string_view block_bytes_key = "echelon.block_bytes", digests_key = "echelon.xxh3_128";

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
  [[nodiscard]] std::int64_t header_bytes() const { return header_bytes_; }
  [[nodiscard]] std::int64_t data_bytes() const { return data_bytes_; }
  /// Of the whole file.
  [[nodiscard]] std::int64_t num_bytes() const { return header_bytes_ + data_bytes_; }
  [[nodiscard]] std::size_t num_blocks() const {
    return static_cast<std::size_t>((data_bytes_ + block_bytes - 1) / block_bytes);
  }
  /// header_bytes() bytes, whatever the digests.
  [[nodiscard]] std::string header(const std::vector<Digest>& blocks) const;

 private:
  std::vector<std::vector<Tensor>> tensors_;
  std::int64_t data_bytes_ = 0, header_bytes_ = 0;
};

/// Writes the file from its start to its end, and its header last. Memory use is constant.
class StateFileWriter {
 public:
  /// Gives the values [first, first + count) of a slice's elements, in the slice's dtype.
  using Values = std::function<void(Range elements, std::byte* out)>;

  /// Creates the file, which must not exist. Throws Failure. `plan` outlives the writer.
  StateFileWriter(std::filesystem::path path, const StateFilePlan& plan);
  /// Removes the file unless it was finished.
  ~StateFileWriter();
  StateFileWriter(const StateFileWriter&) = delete;
  StateFileWriter& operator=(const StateFileWriter&) = delete;

  /// The next slice of the plan. Throws Failure.
  void write(const Values& values);
  /// After all slices: writes the header and syncs the file. Returns the header's digest. Throws Failure.
  [[nodiscard]] Digest finish();

 private:
  [[nodiscard]] std::byte* room(std::int64_t num_bytes);
  void write_tensor(const StateFilePlan::Tensor& tensor, const Values& values);
  void flush();

  std::filesystem::path path_;
  const StateFilePlan& plan_;
  File file_;
  std::size_t next_slice_ = 0;
  std::vector<std::byte> buffer_;  // data from flushed_ on
  std::int64_t flushed_ = 0, filled_ = 0;
  std::int64_t on_disk_ = 0;  // bytes of the data that the system has moved to the disk
  std::vector<Digest> blocks_;
  bool is_finished_ = false;
};

}  // namespace echelon
