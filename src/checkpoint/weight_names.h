// Which parameters a model has, and where each lies in the files of its family. Parameters bear Hugging Face's Llama
// names in every family; GPT-2's files have other names, hold q, k and v as one tensor and every matrix transposed
// (Conv1D: y = x W with W[in, out]). RoPE halves are stored as they are used.
#pragma once

#include "spec/model_spec.h"
#include "tensor/tensor_slice.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

struct NamedShape {
  std::string name;
  Sizes sizes;
  bool operator==(const NamedShape&) const = default;
};

/// Every parameter once (a tied head is the embedding), in the order of the forward pass.
[[nodiscard]] std::vector<NamedShape> global_parameters(const ModelSpec& model);

/// A parameter's place in a file: all of a tensor or some of its columns.
struct FilePlace {
  std::string tensor;
  TensorSlice slice;
  bool transposed = false;  // the parameter's element (i, j) is the slice's (j, i)
};

struct PlacedParameter {
  Sizes sizes;  // of the whole parameter
  FilePlace place;
};

/// Every parameter by name, with its place in a folder of this model. The head of a tied model is there too, in the
/// embedding's place.
[[nodiscard]] std::map<std::string, PlacedParameter, std::less<>> placed_parameters(const ModelSpec& model);

/// The tensors of a folder of this model, in the order of the forward pass.
[[nodiscard]] std::vector<NamedShape> file_tensors(const ModelSpec& model);

}  // namespace echelon
