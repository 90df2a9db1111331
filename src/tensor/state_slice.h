// A part of what training knows about a parameter: of which state, and which elements.
#pragma once

#include "tensor/tensor_slice.h"

#include <string>

namespace echelon {

struct StateSlice {
  std::string parameter;  // its global name
  std::string state;      // "weight", "exp_avg" or "exp_avg_sq", as PyTorch's AdamW names them
  DType dtype = DType::float32;
  TensorSlice slice;
};

}  // namespace echelon
