// Sums and maxima over ranks, formed block by block in the order in which the ranks are added: float64 in float64, int32 in int32, all else in float32.
#pragma once

#include "comm/comm.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace echelon {

class RankOrderSum {
 public:
  static constexpr std::int64_t block_elements = 1024;

  RankOrderSum(DType dtype, ReduceOp op) : dtype_(dtype), op_(op) {}

  /// The sum is x, for up to block_elements elements.
  void begin(const std::byte* x, std::int64_t count);
  /// sum += x, or sum = max(sum, x), where a NaN stays.
  void add(const std::byte* x, std::int64_t count);
  /// x = the sum, rounded to the dtype.
  void store(std::byte* x, std::int64_t count) const;

 private:
  template <class T>
  [[nodiscard]] T* sum() {
    return reinterpret_cast<T*>(sum_.data());
  }
  template <class T>
  [[nodiscard]] const T* sum() const {
    return reinterpret_cast<const T*>(sum_.data());
  }

  DType dtype_;
  ReduceOp op_;
  alignas(64) std::array<std::byte, block_elements * sizeof(double)> sum_;
};

}  // namespace echelon
