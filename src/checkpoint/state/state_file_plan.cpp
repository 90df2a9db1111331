#include "checkpoint/state/state_file_plan.h"

#include "base/error.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/state/state_names.h"

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

constexpr std::int64_t page_bytes = 4096;  // of the data's alignment, so that each write is of whole pages

std::int64_t num_digits(std::int64_t number) {
  std::int64_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

std::int64_t letters_of(std::string_view text) { return std::ssize(text); }
/// "3:7"
std::int64_t letters_of(Range range) { return num_digits(range.first) + 1 + num_digits(range.first + range.count); }
/// "name":{"dtype":"F32","shape":[...],"data_offsets":[...]} and the comma before it, all but what the dots stand for.
std::int64_t letters_of_entry(std::int64_t name_letters, std::string_view format) {
  return letters_of(R"(,"":{"dtype":"","shape":[],"data_offsets":[,]})") + name_letters + letters_of(format);
}

std::int64_t blocks_of(std::int64_t num_bytes) { return (num_bytes + block_bytes - 1) / block_bytes; }

}  // namespace

void StateFileSize::add(std::string_view state, std::string_view parameter, DType dtype,
                        const SliceRectangle& rectangle, bool is_vector) {
  const std::int64_t size = size_of(dtype), begin = (data_bytes_ + size - 1) / size * size;
  if (begin > data_bytes_)
    entry_letters_ += letters_of_entry(letters_of(padding_prefix) + num_digits(data_bytes_), "U8") +
                      num_digits(begin - data_bytes_) + num_digits(data_bytes_) + num_digits(begin);
  data_bytes_ = begin + rectangle.num_elements() * size;
  std::int64_t name = letters_of(state) + letters_of(parameter) + letters_of("/@") + letters_of(rectangle.columns),
               shape = num_digits(rectangle.columns.count);
  if (!is_vector) {
    name += letters_of(rectangle.rows) + 1;
    shape += num_digits(rectangle.rows.count) + 1;
  }
  entry_letters_ +=
      letters_of_entry(name, safetensors_format(dtype)) + shape + num_digits(begin) + num_digits(data_bytes_);
}

std::int64_t StateFileSize::header_bytes() const {
  const std::int64_t metadata = letters_of(R"({"__metadata__":{"":"","":""}})") + letters_of(block_bytes_key) +
                                num_digits(block_bytes) + letters_of(digests_key) +
                                blocks_of(data_bytes_) * static_cast<std::int64_t>(digest_letters);
  const auto length = static_cast<std::int64_t>(sizeof(std::uint64_t));
  return (length + metadata + entry_letters_ + page_bytes - 1) / page_bytes * page_bytes;
}

StateFilePlan::StateFilePlan(const std::vector<StateSlice>& slices) {
  for (const StateSlice& slice : slices) {
    std::vector<Tensor>& tensors = tensors_.emplace_back();
    const bool is_vector = slice.slice.global_sizes().num_dims() == 1;
    size_.add(slice.state, slice.parameter, slice.dtype, slice.slice,
              [&](const SliceRectangle& rectangle, std::int64_t first_byte) {
                tensors.push_back({.name = to_text(StateTensorName{.state = slice.state,
                                                                   .parameter = slice.parameter,
                                                                   .rows = rectangle.rows,
                                                                   .columns = rectangle.columns,
                                                                   .is_vector = is_vector}),
                                   .dtype = slice.dtype,
                                   .rectangle = rectangle,
                                   .is_vector = is_vector,
                                   .first_byte = first_byte});
              });
  }
}

std::string StateFilePlan::header(const std::vector<Digest>& blocks) const {
  std::string digests;
  for (const Digest& digest : blocks) digests += to_text(digest);
  nlohmann::ordered_json json = {
      {"__metadata__", {{block_bytes_key, std::to_string(block_bytes)}, {digests_key, digests}}}};
  std::int64_t end = 0;
  for (const std::vector<Tensor>& of_slice : tensors_)
    for (const Tensor& tensor : of_slice) {
      if (tensor.first_byte > end)
        json[fmt::format("{}{}", padding_prefix, end)] = {
            {"dtype", "U8"}, {"shape", {tensor.first_byte - end}}, {"data_offsets", {end, tensor.first_byte}}};
      end = tensor.first_byte + tensor.num_bytes();
      FileShape shape = {tensor.rectangle.columns.count};
      if (!tensor.is_vector) shape.insert(shape.begin(), tensor.rectangle.rows.count);
      json[tensor.name] = {
          {"dtype", safetensors_format(tensor.dtype)}, {"shape", shape}, {"data_offsets", {tensor.first_byte, end}}};
    }
  std::string header = header_bytes_of(json.dump(), static_cast<std::size_t>(page_bytes));
  if (std::ssize(header) != header_bytes())
    throw Failure(fmt::format("the header of a checkpoint's file has {} bytes, but {} were planned", header.size(),
                              header_bytes()));
  return header;
}

}  // namespace echelon
