// Reads weights from a Hugging Face folder into any layout. Each rank reads only the bytes of its own slices.
#pragma once

#include "checkpoint/hf/weight_folder.h"
#include "checkpoint/hf/weight_names.h"
#include "checkpoint/hf/wrapped_weights.h"
#include "spec/model_spec.h"

namespace echelon {

/// Holds no open file and no weights; ranks may share one.
class HuggingFaceReader {
 public:
  /// Reads config.json and all headers, and checks that every tensor of the model exists with the right shape, and no
  /// other one. Throws Error naming the file, the tensor and both shapes.
  explicit HuggingFaceReader(const std::filesystem::path& folder);

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }

  /// Reads a slice of a parameter, values of `dtype` at `out`; padding is zero. The head of a tied model is the
  /// embedding. Throws Error if the sizes of the folder's parameter differ from the slice's whole tensor, or if a value
  /// is NaN or infinite.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;

  /// Of the model's tensors, by their names in a folder with a head.
  [[nodiscard]] std::map<std::string, DType> dtypes() const;

  /// As ModelReader has it.
  [[nodiscard]] std::vector<float> router_bias() const;
  /// A sentence with what of the folder is left out: layers that predict further tokens, dropout. Empty: nothing.
  [[nodiscard]] std::string note() const;
  /// Of a model of images and text: the tensors of its other parts.
  [[nodiscard]] std::int64_t num_other_tensors() const;

 private:
  void require_no_other_experts() const;
  void require_no_others() const;
  void require_same_head() const;
  [[nodiscard]] const WeightFolder::Entry* find(std::string_view tensor) const;

  std::filesystem::path folder_;
  ModelSpec spec_;
  WeightFolder weights_;
  LanguageModelNames names_;
  std::map<std::string, PlacedParameter, std::less<>> parameters_;
};

}  // namespace echelon
