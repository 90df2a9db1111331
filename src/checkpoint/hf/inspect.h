// Lists the contents of a Hugging Face folder, for people and for tests.
#pragma once

#include "checkpoint/hf/weight_folder.h"

namespace echelon {

struct ListedTensor {
  std::string name;
  std::string format;  // safetensors' name of the dtype
  FileShape shape;
  std::int64_t num_bytes = 0;
  std::string file_name;
};

/// Every tensor of the folder's safetensors, by name, whether Echelon uses it or not. Reads headers only. Throws Error.
[[nodiscard]] std::vector<ListedTensor> list_tensors(const std::filesystem::path& folder);

}  // namespace echelon
