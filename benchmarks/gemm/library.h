// Libraries that multiply matrices and are measured beside ours.
#pragma once

#include "tensor/dtype.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace echelon::bench {

/// One product of a training step: F forward x w^T, D the gradient of the input dy w, W that of the weight, which adds
/// dy^T x.
struct Shape {
  char kind = 'F';
  std::int64_t m = 0, n = 0, k = 0;

  [[nodiscard]] bool transposes_a() const { return kind == 'W'; }
  [[nodiscard]] bool transposes_b() const { return kind == 'F'; }
  [[nodiscard]] bool accumulates() const { return kind == 'W'; }
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

struct Operands {
  void *a = nullptr, *b = nullptr, *c = nullptr;
};

/// A product on one thread, to be called again and again; nothing if the library is absent or cannot.
using Product = std::optional<std::function<void()>>;

/// By the kernels of this name, whatever the processor: a process may have several.
[[nodiscard]] Product openblas_product(const std::string& kernels, const Shape& shape, const Operands& operands);
[[nodiscard]] Product onednn_product(const Shape& shape, DType dtype, const Operands& operands);

}  // namespace echelon::bench
