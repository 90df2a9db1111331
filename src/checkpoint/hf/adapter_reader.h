// Reads adapters from a folder in PEFT's format into any layout.
#pragma once

#include "checkpoint/hf/adapter_config.h"
#include "checkpoint/hf/adapter_names.h"
#include "checkpoint/safetensors/safetensors.h"

namespace echelon {

/// Holds no open file and no weights; ranks may share one.
class AdapterReader {
 public:
  /// Checks that adapter_model.safetensors has exactly the tensors of the config for this model. Throws Error naming
  /// the file, the tensor and both shapes.
  AdapterReader(std::filesystem::path folder, const ModelSpec& model);

  [[nodiscard]] const AdapterConfig& config() const { return config_; }

  /// As ModelReader::read, of A and B.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;

 private:
  std::filesystem::path folder_;
  AdapterConfig config_;
  std::map<std::string, PlacedParameter, std::less<>> parameters_;
  std::map<std::string, FileTensor> tensors_;
};

}  // namespace echelon
