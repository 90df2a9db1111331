#include "checkpoint/safetensors/safetensors.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/shown_json.h"
#include "files/file.h"

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
  require(shape.is_array(), "has shape = {}, not a list of sizes", shown_json(shape));
  for (const nlohmann::json& size : shape) {
    require(size.is_number_unsigned() && size.get<std::uint64_t>() <= (1ULL << 60), "has the size {} in its shape",
            shown_json(size));
    tensor.shape.push_back(size.get<std::int64_t>());
    require(!__builtin_mul_overflow(expected_bytes, tensor.shape.back(), &expected_bytes),
            "has a shape too large for any file");
  }
  const nlohmann::json& offsets = entry.at("data_offsets");
  require(
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
      "has data_offsets = {}, not two byte offsets", shown_json(offsets));
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

SafetensorsHeader parse_header(std::string_view text, std::int64_t first_byte, std::int64_t data_bytes) {
  const nlohmann::json json = parse_json_object(text, "its header");
  SafetensorsHeader header;
  header.num_bytes = first_byte;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) header.metadata[key] = value.get<std::string>();
      continue;
    }
    try {
      header.tensors[name] = parse_tensor(entry, first_byte, data_bytes);
    } catch (const Error& error) {
      throw Error(fmt::format("tensor '{}' {}", name, error.what()));
    } catch (const nlohmann::json::exception&) {
      throw Error(fmt::format("tensor '{}' lacks a valid dtype, shape or data_offsets", name));
    }
  }
  require_no_gaps(header.tensors, first_byte, first_byte + data_bytes);
  return header;
}

}  // namespace

FileShape file_shape(const Sizes& sizes) {
  FileShape shape;
  for (int dim = 0; dim < sizes.num_dims(); ++dim) shape.push_back(sizes[dim]);
  return shape;
}

std::string to_string(const FileShape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string_view safetensors_format(DType dtype) {
  const auto format =
      std::find_if(formats.begin(), formats.end(), [&](const Format& candidate) { return candidate.dtype == dtype; });
  require(format != formats.end(), "safetensors has no dtype {}", name_of(dtype));
  return format->name;
}

std::optional<DType> dtype_of_format(std::string_view format) {
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const Format& candidate) { return candidate.name == format; });
  return found == formats.end() ? std::nullopt : found->dtype;
}

std::string read_header_bytes(const File& file, const std::filesystem::path& path) {
  const std::int64_t file_bytes = file.num_bytes();
  std::uint64_t text_bytes = 0;
  constexpr auto length_bytes = static_cast<std::int64_t>(sizeof text_bytes);
  require(file_bytes >= length_bytes,
          "{} is not a safetensors file: it has {} bytes, fewer than its header's length takes", path.string(),
          file_bytes);
  file.read_at(0, &text_bytes, length_bytes);
  require(text_bytes <= static_cast<std::uint64_t>(max_header_bytes),
          "{} is not a safetensors file: its header would have {} bytes", path.string(), text_bytes);
  const auto first_byte = static_cast<std::int64_t>(text_bytes) + length_bytes;
  require(first_byte <= file_bytes, "{} is truncated: its header has {} bytes, the file {}", path.string(), text_bytes,
          file_bytes);
  std::string bytes(static_cast<std::size_t>(first_byte), '\0');
  file.read_at(0, bytes.data(), first_byte);
  return bytes;
}

SafetensorsHeader parse_safetensors_header(const std::string& bytes, std::int64_t file_bytes,
                                           const std::filesystem::path& path) {
  const auto first_byte = static_cast<std::int64_t>(bytes.size());
  try {
    return parse_header(std::string_view(bytes).substr(sizeof(std::uint64_t)), first_byte, file_bytes - first_byte);
  } catch (const Failure&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("{} is corrupt: {}", path.string(), error.what()));
  }
}

std::map<std::string, FileTensor> read_safetensors_header(const std::filesystem::path& path) {
  const File file = File::open_in_folder(path.parent_path(), path.filename().string());
  return parse_safetensors_header(read_header_bytes(file, path), file.num_bytes(), path).tensors;
}

}  // namespace echelon
