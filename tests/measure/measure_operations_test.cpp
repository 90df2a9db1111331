// Operations that are timed in another's place.
#include "measure/operations/measure_operations.h"

#include "ops/operations/attention.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

// Operands of 131,072 tokens do not fit: a shorter sequence is timed, and its seconds count for as many pairs.
TEST(MeasureOperations, TimesAShortSequenceInPlaceOfALongOne) {
  const std::int64_t pairs = num_visible_pairs(131072, 131072);
  const OperationCurves curves = measure_operations({{OpKind::attention, DType::float32, 1, pairs, 8}},
                                                    {.num_rounds = 1, .pool_bytes = std::int64_t{4} << 20U});
  const OperationPoint& point = curves.at("attention").at("float32").at(0);
  EXPECT_EQ(point.n, pairs);
  EXPECT_EQ(point.amount, 4.0 * static_cast<double>(pairs) * 8);
  EXPECT_GT(point.core_seconds, 0);
}

TEST(MeasureOperations, TimesWeightGradientsByThemselves) {
  const OperationCurves curves = measure_operations(
      {{OpKind::matmul, DType::float32, 8, 16, 32}, {OpKind::matmul, DType::float32, 8, 16, 32, true}},
      {.num_rounds = 1, .pool_bytes = std::int64_t{1} << 20U});
  for (const char* name : {"matmul", "matmul_weight_gradient"}) {
    const OperationPoint& point = curves.at(name).at("float32").at(0);
    EXPECT_EQ(std::tuple(point.m, point.n, point.k), std::tuple(8, 16, 32)) << name;
    EXPECT_GT(point.shared_seconds, 0) << name;
  }
}

}  // namespace
}  // namespace echelon
