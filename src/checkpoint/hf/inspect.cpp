#include "checkpoint/hf/inspect.h"

namespace echelon {

std::vector<ListedTensor> list_tensors(const std::filesystem::path& folder) {
  const WeightFolder weights(folder);
  std::vector<ListedTensor> listed;
  for (const auto& [name, entry] : weights.entries())
    listed.push_back(
        {name, entry.tensor.format, entry.tensor.shape, entry.tensor.num_bytes, entry.path.filename().string()});
  return listed;
}

}  // namespace echelon
