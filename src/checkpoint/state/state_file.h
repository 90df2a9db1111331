// The file in which one rank writes its part of a checkpoint: safetensors, planned to the byte before anything is
// computed. docs/reference/checkpoints.md describes it.
#pragma once

#include "checkpoint/state/state_file_plan.h"
#include "files/file.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

namespace echelon {

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
