#include "checkpoint/state/state_file.h"

#include "files/system_calls.h"

#include "base/error.h"

#include <algorithm>
#include <cassert>
#include <system_error>

namespace echelon {
namespace {

constexpr std::int64_t buffer_bytes = 4 * block_bytes, most_cached_bytes = 8 * buffer_bytes;

}  // namespace

StateFileWriter::StateFileWriter(std::filesystem::path path, const StateFilePlan& plan)
    : path_(std::move(path)), plan_(plan), file_(File::create_new(path_)) {
  buffer_.resize(static_cast<std::size_t>(std::min(plan.data_bytes(), buffer_bytes)));
}

StateFileWriter::~StateFileWriter() {
  if (!is_finished_) system_calls().unlink(path_.c_str());
}

void StateFileWriter::write(const Values& values) {
  assert(next_slice_ < plan_.tensors().size());
  for (const StateFilePlan::Tensor& tensor : plan_.tensors()[next_slice_++]) write_tensor(tensor, values);
}

void StateFileWriter::write_tensor(const StateFilePlan::Tensor& tensor, const Values& values) {
  const std::int64_t size = size_of(tensor.dtype), padding = tensor.first_byte - (flushed_ + filled_);
  if (padding > 0) std::fill_n(room(padding), padding, std::byte{0});
  const auto [rows, columns, first, stride] = tensor.rectangle;
  const bool is_whole = stride == columns.count;  // rows follow each other in the slice
  const std::int64_t num_runs = is_whole ? 1 : rows.count, run = is_whole ? rows.count * columns.count : columns.count;
  for (std::int64_t r = 0; r < num_runs; ++r)
    for (std::int64_t done = 0, count = 0; done < run; done += count) {
      std::byte* out = room(size);
      count = std::min(run - done, 1 + (std::ssize(buffer_) - filled_) / size);
      filled_ += (count - 1) * size;
      values({first + r * stride + done, count}, out);
    }
}

/// The next bytes of the file. A caller that needs many asks for one value and takes what is free after it.
std::byte* StateFileWriter::room(std::int64_t num_bytes) {
  if (filled_ + num_bytes > std::ssize(buffer_)) flush();
  std::byte* first = buffer_.data() + filled_;
  filled_ += num_bytes;
  return first;
}

void StateFileWriter::flush() {
  for (std::int64_t first = 0; first < filled_; first += block_bytes)
    blocks_.push_back(
        digest_of(buffer_.data() + first, static_cast<std::size_t>(std::min(block_bytes, filled_ - first))));
  const std::int64_t offset = plan_.header_bytes() + flushed_;
  file_.write_at(offset, buffer_.data(), filled_);
  if (filled_ == buffer_bytes) file_.start_writeback(offset, filled_);
  flushed_ += filled_;
  filled_ = 0;
  // Memory that the system takes for a large file costs more time than the disk, and others lose what they read.
  for (; flushed_ - on_disk_ > most_cached_bytes; on_disk_ += buffer_bytes)
    file_.finish_writeback(plan_.header_bytes() + on_disk_, buffer_bytes);
}

Digest StateFileWriter::finish() {
  flush();
  if (flushed_ != plan_.data_bytes())
    throw Failure(
        fmt::format("{}: {} bytes were written, but {} were planned", path_.string(), flushed_, plan_.data_bytes()));
  const std::string header = plan_.header(blocks_);
  file_.write_at(0, header.data(), std::ssize(header));
  file_.sync();
  file_.close();
  is_finished_ = true;
  return digest_of(header);
}

}  // namespace echelon
