// Formats that weights cannot have. (Every float16 and its rounding: tests/comm/sum_test.cpp; files of every format:
// round_trip_test.cpp.)
#include "checkpoint/safetensors/convert_values.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

TEST(ConvertNumbers, RefusesIntegers) {
  float value = 1;
  std::int32_t number = 0;
  EXPECT_THROW(convert_values(DType::float32, &value, DType::int32, &number, 1), Error);
  EXPECT_THROW(convert_values(DType::int32, &number, DType::float32, &value, 1), Error);
}

}  // namespace
}  // namespace echelon
