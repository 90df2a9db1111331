// Grouped products in tensor cores: that they are taken where they can be. Their numbers are the conformance tests'
// (ops_test.cpp).
#include "cuda/ops/grouped_products.h"

#include "cuda/device/device.h"
#include "numbers.h"

#include <gtest/gtest.h>

namespace echelon::cuda {
namespace {

TEST(GroupedProductsInTensorCores, TakeRowsOfMultiplesOf16BytesOfBfloat16) {
  Device device(0);
  const cudaStream_t stream = device.compute().get();
  const Numbers offsets = Numbers::tokens({0, 1, 2});
  const auto takes = [&](DType dtype, std::int64_t K, std::int64_t N) {
    return mma_grouped_matmul(
        {.a = Numbers(dtype, {2, K}), .w = Numbers(dtype, {2, K, N}), .offsets = offsets, .c = Numbers(dtype, {2, N})},
        stream);
  };
  const auto takes_weight = [&](DType dtype, std::int64_t F, std::int64_t D) {
    return mma_grouped_matmul_backward_weight({.dy = Numbers(dtype, {2, F}),
                                               .x = Numbers(dtype, {2, D}),
                                               .offsets = offsets,
                                               .dw = Numbers(DType::float32, {2, F, D})},
                                              stream);
  };
  EXPECT_FALSE(takes(DType::float16, 8, 8));
  EXPECT_FALSE(takes_weight(DType::float16, 8, 8));
  for (const auto& [K, N] : {std::pair{12, 8}, {8, 12}}) {
    EXPECT_FALSE(takes(DType::bfloat16, K, N));
    EXPECT_FALSE(takes_weight(DType::bfloat16, K, N));
  }
  EXPECT_TRUE(takes(DType::bfloat16, 8, 0));  // nothing is launched
  EXPECT_TRUE(takes_weight(DType::bfloat16, 0, 8));
}

}  // namespace
}  // namespace echelon::cuda
