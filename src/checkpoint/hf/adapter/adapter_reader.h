// Reads adapters from a folder in PEFT's format into any layout.
#pragma once

#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/safetensors/safetensors.h"

namespace echelon {

/// Holds no open file and no weights; ranks may share one.
class AdapterReader {
 public:
  /// Checks that adapter_model.safetensors has exactly the tensors of the config for this model. Throws Error naming
  /// the file, the tensor and both shapes.
  AdapterReader(std::filesystem::path folder, const ModelSpec& model);

  [[nodiscard]] const AdapterConfig& config() const { return config_; }

  /// Of the tensors of the file.
  [[nodiscard]] std::map<std::string, DType> dtypes() const;

  /// As ModelReader::read, of A and B and of modules that are saved whole. Throws Error also if the file has two values
  /// of a tied weight.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;

 private:
  void require_same_head(const TensorSlice& slice, DType dtype, const void* embedding) const;

  std::filesystem::path folder_;
  AdapterConfig config_;
  bool is_tied_;
  std::map<std::string, PlacedParameter, std::less<>> parameters_;
  std::map<std::string, FileTensor> tensors_;
};

}  // namespace echelon
