// Buffers for the tests of communicators, their contents, and sums by naive loops.
#pragma once

#include "comm/comm.h"
#include "spec/mesh_shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace echelon::conformance {

/// The compiler's own binary16, as a check of the transport's conversion. For Arm, GCC 12 knows it by another name.
#if defined(__aarch64__)
using Binary16 = __fp16;
#else
using Binary16 = _Float16;
#endif

inline constexpr DType all_dtypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int32};

/// A line of n ranks along dp_replicate; everything of a group of n.
[[nodiscard]] MeshShape line(int n);
inline constexpr Group line_group = {.axes = {Axis::dp_replicate}};

class Buffer {
 public:
  Buffer(DType dtype, std::int64_t num_elements)
      : dtype_(dtype), num_elements_(num_elements), bytes_(static_cast<std::size_t>(num_elements * size_of(dtype))) {}

  [[nodiscard]] Tensor tensor() { return {bytes_.data(), dtype_, {num_elements_}}; }
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  void set(std::int64_t i, double value);  // rounds to the dtype
  [[nodiscard]] double get(std::int64_t i) const;
  bool operator==(const Buffer&) const = default;

 private:
  DType dtype_;
  std::int64_t num_elements_;
  std::vector<std::byte> bytes_;
};

/// A number whose sums round differently in different orders; the same for all dtypes but for rounding. `salt`
/// distinguishes buffers.
[[nodiscard]] double number(int rank, std::int64_t i, int salt = 0);
[[nodiscard]] Buffer numbers(DType dtype, std::int64_t num_elements, int rank, int salt = 0);

/// The elements [first, first + count) of the ranks' numbers, reduced in rank order and formed as comm.h says.
[[nodiscard]] Buffer reduced(DType dtype, std::int64_t count, int num_ranks, ReduceOp op, int salt = 0,
                             std::int64_t first = 0);

/// EXPECTs equal bits and names the first element that differs.
void expect_same(const Buffer& got, const Buffer& expected, const std::string& what);

}  // namespace echelon::conformance
