// The parameters of a model. They have Hugging Face's Llama names in every family.
#pragma once

#include "spec/model_spec.h"
#include "tensor/tensor_slice.h"

#include <string>
#include <vector>

namespace echelon {

struct NamedShape {
  std::string name;
  Sizes sizes;
  bool operator==(const NamedShape&) const = default;
};

/// Every parameter once (a tied head is the embedding), in the order of the forward pass.
[[nodiscard]] std::vector<NamedShape> global_parameters(const ModelSpec& model);

}  // namespace echelon
