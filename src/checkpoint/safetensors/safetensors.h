// Hugging Face's safetensors: u64 length of the header (little-endian), header (JSON: name -> dtype, shape,
// data_offsets), raw little-endian values. https://huggingface.co/docs/safetensors. Every field of a file is checked
// before use.
#pragma once

#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

class File;

using FileShape = std::vector<std::int64_t>;  // files may hold more dims than Sizes does

[[nodiscard]] FileShape file_shape(const Sizes& sizes);
[[nodiscard]] std::string to_string(const FileShape& shape);  // "[2, 3]"

/// One tensor of a file.
struct FileTensor {
  std::string format;          // safetensors' name of the dtype, e.g. "BF16"
  std::optional<DType> dtype;  // unset for formats that Echelon does not compute in (BOOL, I64, ...)
  FileShape shape;
  std::int64_t first_byte = 0;  // from the start of the file
  std::int64_t num_bytes = 0;
};

/// The header of a file.
struct SafetensorsHeader {
  std::map<std::string, FileTensor> tensors;                   // by name
  std::map<std::string, std::string, std::less<>> metadata{};  // what the file says in addition
  std::int64_t num_bytes = 0;                                  // with the length before it; data starts there
};

/// Reads a header from the bytes before the data of a file of `file_bytes`. Throws the errors of
/// read_safetensors_header, which name `path`.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(const std::string& bytes, std::int64_t file_bytes,
                                                         const std::filesystem::path& path);

/// The bytes of a file before its data. Throws Error if it has no whole header.
[[nodiscard]] std::string read_header_bytes(const File& file, const std::filesystem::path& path);

/// Reads and checks only the header: its length, the JSON, known formats, sizes that agree with bytes, data that fills
/// the file without gaps or overlaps. Throws Error naming the file and the fault.
[[nodiscard]] std::map<std::string, FileTensor> read_safetensors_header(const std::filesystem::path& path);

/// "F32" etc.; throws Error for a dtype that files do not have.
[[nodiscard]] std::string_view safetensors_format(DType dtype);

/// The dtype of a format, if Echelon computes in it.
[[nodiscard]] std::optional<DType> dtype_of_format(std::string_view format);

/// The bytes before the data: the length of the JSON, which is padded so that the data is aligned, and it.
[[nodiscard]] std::string header_bytes_of(std::string json, std::size_t alignment = 8);

struct TensorPlan {
  std::string name;
  DType dtype = DType::float32;
  FileShape shape;
  std::optional<FileTensor> like{};  // another file's tensor that is copied, of any format
};

/// The layout of a file to be written.
struct FilePlan {
  std::string file_name;
  std::string header;                         // length and JSON, padded so that the data is aligned to 8 bytes
  std::map<std::string, FileTensor> tensors;  // by name
  std::int64_t num_bytes = 0;                 // of the whole file
};

struct FolderPlan {
  std::vector<FilePlan> files;
  std::string index;  // text of model.safetensors.index.json; empty for a single file

  /// The file that holds the tensor; nullptr if none does.
  [[nodiscard]] const FilePlan* file_of(std::string_view tensor) const;
};

inline constexpr std::string_view single_file_name = "model.safetensors";
inline constexpr std::string_view index_file_name = "model.safetensors.index.json";

/// One file, or as many as needed to keep each below `max_file_bytes` of data (a larger tensor gets a file of its own).
/// Tensors keep their order.
[[nodiscard]] FolderPlan plan_safetensors(const std::vector<TensorPlan>& tensors, std::int64_t max_file_bytes);

}  // namespace echelon
