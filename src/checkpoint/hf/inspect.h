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

/// The same of a folder of adapters.
[[nodiscard]] std::vector<ListedTensor> list_adapter_tensors(const std::filesystem::path& folder);

/// Whether Echelon can train the model of a folder.
struct FolderVerdict {
  std::string model_type{};          // of config.json
  std::vector<std::string> missing;  // sentences that say why it cannot; empty: it can
  std::vector<std::string> notes;    // what it will not use
};

/// Of any folder with a config.json: every fault of the config or the first of the weights, and what is not used. Reads
/// no weights. Throws Error if config.json is not a JSON object with a model_type, Failure.
[[nodiscard]] FolderVerdict verdict_of(const std::filesystem::path& folder);

}  // namespace echelon
