// The safetensors of a Hugging Face folder, in one file or in several with an index, as one map from tensor names to
// places.
#pragma once

#include "checkpoint/safetensors/safetensors.h"
#include "spec/model_spec.h"

namespace echelon {

class WeightFolder {
 public:
  struct Entry {
    std::filesystem::path path;
    FileTensor tensor;
  };

  /// Reads and checks the index and every header. Throws Error naming the file and the fault; a tensor that is in two
  /// files is one.
  explicit WeightFolder(const std::filesystem::path& folder);

  [[nodiscard]] const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// nullptr if no tensor has that name.
  [[nodiscard]] const Entry* find(std::string_view tensor) const;

  /// With a tensor for each expert, where the folder has those of a layer in one (stacked_experts.h).
  [[nodiscard]] static WeightFolder with_separate_experts(const std::filesystem::path& folder, const ModelSpec& model);

 private:
  using Headers = std::map<std::string, std::map<std::string, FileTensor>>;  // by file, then by tensor
  void require_each_once(const std::filesystem::path& folder, Headers headers) const;

  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace echelon
