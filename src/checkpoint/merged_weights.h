// The weights of a model to which the products of adapters were added: W + s B A. Modules that were trained whole are
// in place of the base's.
#pragma once

#include "checkpoint/hf/adapter/adapter_config.h"
#include "spec/model_spec.h"
#include "tensor/tensor_slice.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace echelon {

class ModelReader;

class MergedWeights {
 public:
  /// Adapters of a folder of PEFT's, or of a checkpoint of a run with adapters. `base`: the folder of their model;
  /// empty: the one that they name. Throws Error if they are of another base.
  MergedWeights(const std::filesystem::path& adapters, const std::filesystem::path& base);

  [[nodiscard]] const ModelReader& base() const { return *base_; }
  [[nodiscard]] const std::filesystem::path& base_folder() const { return base_folder_; }
  [[nodiscard]] const ModelSpec& spec() const;
  /// As ModelReader::read. Sums are in float64, and rounded once.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;
  [[nodiscard]] std::vector<float> router_bias() const;

 private:
  /// Whole A and B of a layer.
  struct Matrices {
    std::string layer;
    std::vector<double> a, b;
  };
  [[nodiscard]] std::shared_ptr<const Matrices> matrices_of(const std::string& layer, const Sizes& weight) const;
  void open_checkpoint(const std::filesystem::path& adapters, const std::filesystem::path& base);
  void open_folder(const std::filesystem::path& adapters, const std::filesystem::path& base);
  void open_base(const std::filesystem::path& base);

  std::filesystem::path base_folder_;
  std::shared_ptr<const ModelReader> base_;
  LoraConfig lora_;
  std::function<void(const std::string& name, const TensorSlice& slice, double* out)> read_adapter_;
  struct Last {
    std::mutex mutex;
    std::shared_ptr<const Matrices> matrices;
  };
  std::shared_ptr<Last> last_ = std::make_shared<Last>();  // of the layer that was read last
};

}  // namespace echelon
