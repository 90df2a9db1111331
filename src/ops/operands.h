// The tensors that an operation touches.
#pragma once

#include "tensor/tensor.h"

#include <vector>

namespace echelon {

struct Operands {
  DType dtype = DType::float32;    // of the activations
  std::vector<Tensor> reads;       // also what is added to or changed in place
  std::vector<Tensor> overwrites;  // whatever they held before, unless they are among `reads` too
};

/// Without optional arguments that were not given.
[[nodiscard]] inline std::vector<Tensor> existing(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& tensor) { return !tensor.exists(); });
  return tensors;
}

}  // namespace echelon
