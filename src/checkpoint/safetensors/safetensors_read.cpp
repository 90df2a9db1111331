#include "checkpoint/safetensors/safetensors.h"

#include "base/error.h"
#include "checkpoint/safetensors/file_io.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>

namespace echelon {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian; a big-endian machine would have to swap");

constexpr std::int64_t max_header_bytes = 100'000'000;  // the limit of the format's own library

struct Format {
  std::string_view name;
  std::int64_t element_bytes;
  std::optional<DType> dtype;
};

constexpr std::array<Format, 15> formats = {{{"F32", 4, DType::float32},
                                             {"F64", 8, DType::float64},
                                             {"BF16", 2, DType::bfloat16},
                                             {"F16", 2, DType::float16},
                                             {"I32", 4, DType::int32},
                                             {"I64", 8, {}},
                                             {"I16", 2, {}},
                                             {"I8", 1, {}},
                                             {"U64", 8, {}},
                                             {"U32", 4, {}},
                                             {"U16", 2, {}},
                                             {"U8", 1, {}},
                                             {"BOOL", 1, {}},
                                             {"F8_E4M3", 1, {}},
                                             {"F8_E5M2", 1, {}}}};

// Throws nlohmann's exceptions if the JSON has another structure; the caller turns them into sentences.
FileTensor parse_tensor(const nlohmann::json& entry, std::int64_t data_first_byte, std::int64_t data_bytes) {
  FileTensor tensor;
  tensor.format = entry.at("dtype").get<std::string>();
  const auto format = std::find_if(formats.begin(), formats.end(),
                                   [&](const Format& candidate) { return candidate.name == tensor.format; });
  require(format != formats.end(), "has the unknown dtype '{}'", tensor.format);
  tensor.dtype = format->dtype;
  std::int64_t expected_bytes = format->element_bytes;
  const nlohmann::json& shape = entry.at("shape");
  require(shape.is_array(), "has shape = {}, not a list of sizes", shape.dump());
  for (const nlohmann::json& size : shape) {
    require(size.is_number_unsigned() && size.get<std::uint64_t>() <= (1ULL << 60), "has the size {} in its shape",
            size.dump());
    tensor.shape.push_back(size.get<std::int64_t>());
    require(!__builtin_mul_overflow(expected_bytes, tensor.shape.back(), &expected_bytes),
            "has a shape too large for any file");
  }
  const nlohmann::json& offsets = entry.at("data_offsets");
  require(
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
      "has data_offsets = {}, not two byte offsets", offsets.dump());
  const auto first = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  require(first <= end && end <= static_cast<std::uint64_t>(data_bytes),
          "is at bytes {} to {} of {} bytes of data: the file is truncated or corrupt", first, end, data_bytes);
  tensor.num_bytes = static_cast<std::int64_t>(end - first);
  tensor.first_byte = data_first_byte + static_cast<std::int64_t>(first);
  require(tensor.num_bytes == expected_bytes, "has {} bytes, but {} {} needs {}", tensor.num_bytes, tensor.format,
          to_string(tensor.shape), expected_bytes);
  return tensor;
}

void require_no_gaps(const std::map<std::string, FileTensor>& tensors, std::int64_t first_byte, std::int64_t end_byte) {
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, std::string_view>> by_place;
  for (const auto& [name, tensor] : tensors) by_place.push_back({{tensor.first_byte, tensor.num_bytes}, name});
  std::sort(by_place.begin(), by_place.end());
  for (const auto& [place, name] : by_place) {
    require(place.first == first_byte, "tensor '{}' starts at byte {}, but the one before it ends at {}", name,
            place.first, first_byte);
    first_byte += place.second;
  }
  require(first_byte == end_byte, "the tensors end at byte {}, but the file at {}", first_byte, end_byte);
}

std::map<std::string, FileTensor> parse_header(const std::string& text, std::int64_t first_byte,
                                               std::int64_t data_bytes) {
  const nlohmann::json header = nlohmann::json::parse(text);
  require(header.is_object(), "its header is not a JSON object");
  std::map<std::string, FileTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      tensors[name] = parse_tensor(entry, first_byte, data_bytes);
    } catch (const Error& error) {
      throw Error(fmt::format("tensor '{}' {}", name, error.what()));
    } catch (const nlohmann::json::exception&) {
      throw Error(fmt::format("tensor '{}' lacks a valid dtype, shape or data_offsets", name));
    }
  }
  require_no_gaps(tensors, first_byte, first_byte + data_bytes);
  return tensors;
}

}  // namespace

std::string to_string(const FileShape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string_view safetensors_format(DType dtype) {
  const auto format =
      std::find_if(formats.begin(), formats.end(), [&](const Format& candidate) { return candidate.dtype == dtype; });
  require(format != formats.end(), "safetensors has no dtype {}", name_of(dtype));
  return format->name;
}

std::map<std::string, FileTensor> read_safetensors_header(const std::filesystem::path& path) {
  const File file = File::open_to_read(path);
  const std::int64_t file_bytes = file.num_bytes();
  require(file_bytes >= 8, "{} is not a safetensors file: it has {} bytes, fewer than its header's length takes",
          path.string(), file_bytes);
  std::uint64_t header_bytes = 0;
  file.read_at(0, &header_bytes, 8);
  require(header_bytes <= static_cast<std::uint64_t>(max_header_bytes),
          "{} is not a safetensors file: its header would have {} bytes", path.string(), header_bytes);
  const auto first_byte = static_cast<std::int64_t>(header_bytes) + 8;
  require(first_byte <= file_bytes, "{} is truncated: its header has {} bytes, the file {}", path.string(),
          header_bytes, file_bytes);
  std::string text(header_bytes, '\0');
  file.read_at(8, text.data(), static_cast<std::int64_t>(header_bytes));
  try {
    return parse_header(text, first_byte, file_bytes - first_byte);
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("{} is corrupt: its header is not valid JSON", path.string()));
  } catch (const Failure&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("{} is corrupt: {}", path.string(), error.what()));
  }
}

}  // namespace echelon
