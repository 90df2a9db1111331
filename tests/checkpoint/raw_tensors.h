// The tensors of a folder as they are in its files.
#pragma once

#include "checkpoint/hf/weight_folder.h"
#include "files/file.h"

#include <filesystem>
#include <map>
#include <string>

namespace echelon {

struct RawTensor {
  std::string format;
  FileShape shape;
  std::string bytes;
  bool operator==(const RawTensor&) const = default;
};

inline std::map<std::string, RawTensor> tensors_in(const std::filesystem::path& folder) {
  std::map<std::string, RawTensor> tensors;
  const WeightFolder weights(folder);
  for (const auto& [name, entry] : weights.entries()) {
    RawTensor& raw = tensors[name];
    raw = {entry.tensor.format, entry.tensor.shape, std::string(static_cast<std::size_t>(entry.tensor.num_bytes), ' ')};
    File::open_to_read(entry.path).read_at(entry.tensor.first_byte, raw.bytes.data(), entry.tensor.num_bytes);
  }
  return tensors;
}

}  // namespace echelon
