// Tensors that own their numbers, and comparisons of them, for the tests of operations.
#pragma once

#include "ops/visit.h"
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace echelon {

class Numbers {
 public:
  Numbers(DType dtype, Sizes sizes)
      : bytes_(static_cast<std::size_t>(sizes.num_elements() * size_of(dtype)) + 64), tensor_(nullptr, dtype, sizes) {}

  /// Normal with the given spread, the same for every run and (rounded) for every dtype.
  static Numbers random(DType dtype, Sizes sizes, unsigned seed, double spread = 1.0) {
    Numbers x(dtype, sizes);
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0.0, spread);
    for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, normal(generator));
    return x;
  }
  static Numbers tokens(std::vector<std::int32_t> values) {
    Numbers x(DType::int32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) x.tensor().as<std::int32_t>()[i] = values[i];
    return x;
  }

  /// A view of the numbers; they start at a multiple of 16 bytes, as unaligned as the contract lets a tensor be.
  [[nodiscard]] Tensor tensor() const {
    std::byte* const here = const_cast<std::byte*>(bytes_.data());
    return {tensor_.data != nullptr ? tensor_.data : here, tensor_.dtype, tensor_.sizes};
  }
  /// From now on tensor() is a view of other memory, with a copy of the numbers for all that is known here; null: of
  /// its own again.
  void lie_at(std::byte* address) { tensor_.data = address; }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  operator Tensor() const { return tensor(); }

  [[nodiscard]] std::int64_t count() const { return tensor_.num_elements(); }
  [[nodiscard]] double get(std::int64_t i) const {
    double value = 0;
    if (tensor_.dtype == DType::int32) return tensor().as<std::int32_t>()[i];
    visit_float(tensor_.dtype, [&](auto t) { value = to<double>(tensor().as<decltype(t)>()[i]); });
    return value;
  }
  void set(std::int64_t i, double value) {
    visit_float(tensor_.dtype, [&](auto t) { tensor().as<decltype(t)>()[i] = to<decltype(t)>(value); });
  }
  bool operator==(const Numbers& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

/// What rounding allows relative to the largest number compared: storage in `dtype`, sums of some hundred terms in its
/// accumulate_dtype.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return 1e-12;
    case DType::float32: return 2e-5;
    // 8 bits of mantissa; an intermediate rounding and the result's may differ by one unit each.
    case DType::bfloat16: return 1.0 / 64;
    case DType::float16: return 1.0 / 512;  // 11 bits
    case DType::int32:
    case DType::int16: break;
  }
  return 0;
}

inline void expect_near(const Numbers& actual, const Numbers& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.count(), expected.count()) << what;
  double largest = 1e-6;
  for (std::int64_t i = 0; i < expected.count(); ++i)
    if (std::isfinite(expected.get(i))) largest = std::max(largest, std::abs(expected.get(i)));
  for (std::int64_t i = 0; i < expected.count(); ++i) {
    const double a = actual.get(i), e = expected.get(i);
    if (std::isnan(e) ? std::isnan(a) : a == e) continue;
    ASSERT_LE(std::abs(a - e), tolerance * largest) << what << ", element " << i << ": " << a << " instead of " << e;
  }
}

/// dx against central differences of `loss` (a function of the numbers in x), all in float64.
inline void expect_gradient(Numbers& x, const Numbers& dx, const std::function<double()>& loss,
                            const std::string& what) {
  ASSERT_EQ(x.count(), dx.count());
  constexpr double step = 1e-5;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double before = x.get(i);
    x.set(i, before + step);
    const double above = loss();
    x.set(i, before - step);
    const double below = loss();
    x.set(i, before);
    ASSERT_NEAR(dx.get(i), (above - below) / (2 * step), 1e-7) << what << ", element " << i;
  }
}

}  // namespace echelon
