// The parameters of a model, and the place of each in the files of its family. Parameters have Hugging Face's Llama
// names in every family. GPT-2's files use other names, store q, k and v as one tensor and transpose every matrix
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

/// A parameter's place in a file: a whole tensor or some of its columns.
struct FilePlace {
  std::string tensor;
  TensorSlice slice;
  bool transposed = false;  // the parameter's element (i, j) is the slice's (j, i)
};

struct PlacedParameter {
  Sizes sizes;  // of the whole parameter
  FilePlace place;
};

/// Every parameter by name, with its place in a folder of this model. Includes the head of a tied model, at the
/// embedding's place.
[[nodiscard]] std::map<std::string, PlacedParameter, std::less<>> placed_parameters(const ModelSpec& model);

/// The tensors of a folder of this model, in the order of the forward pass.
[[nodiscard]] std::vector<NamedShape> file_tensors(const ModelSpec& model);

}  // namespace echelon
