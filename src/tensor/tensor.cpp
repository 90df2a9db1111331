#include "tensor/tensor.h"

#include <functional>

#include <fmt/format.h>

namespace echelon {

std::string to_string(const Sizes& sizes) {
  std::string text = "[";
  for (int dim = 0; dim < sizes.num_dims(); ++dim) text += fmt::format("{}{}", dim == 0 ? "" : ", ", sizes[dim]);
  return text + "]";
}

bool overlap(const Tensor& a, const Tensor& b) {
  const std::less<> before;  // defined for pointers into different allocations, too
  return a.num_bytes() > 0 && b.num_bytes() > 0 && before(a.data, b.data + b.num_bytes()) &&
         before(b.data, a.data + a.num_bytes());
}

}  // namespace echelon
