#include "tensor/tensor.h"

#include <fmt/format.h>

namespace echelon {

std::string to_string(const Sizes& sizes) {
  std::string text = "[";
  for (int dim = 0; dim < sizes.num_dims(); ++dim) text += fmt::format("{}{}", dim == 0 ? "" : ", ", sizes[dim]);
  return text + "]";
}

}  // namespace echelon
