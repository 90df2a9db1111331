// The choice of kernels by their times, and one small measurement.
#include "measure/measure_products.h"

#include "ops/cpu/gemm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using ::testing::HasSubstr;

const ProductChoice shipped = {.core_type = "Haswell"};

// Times are of one core times those of all: a factor of 4 is twice the speed.
TEST(FastestProducts, AreTheShippedOnesUnlessOthersAreFasterByMoreThanChance) {
  ProductTimes times = {{DType::float32, {{"own", 1.0}, {"openblas/Haswell", 0.97}, {"openblas/SkylakeX", 0.98}}},
                        {DType::float64, {{"openblas/Haswell", 1.0}, {"openblas/SkylakeX", 1.0}}},
                        {DType::bfloat16, {{"widened", 1.0}, {"native", 0.25}}}};
  ProductChoice fastest = fastest_products(times, shipped);
  EXPECT_EQ(to_text(fastest), "float32 own, float64 openblas/Haswell, bfloat16 native, float16 widened");
  EXPECT_DOUBLE_EQ(speed_of(times, shipped, fastest, DType::bfloat16), 2);
  EXPECT_DOUBLE_EQ(speed_of(times, shipped, fastest, DType::float32), 1);
  EXPECT_DOUBLE_EQ(speed_of(times, shipped, fastest, DType::float16), 1) << "nothing to choose from";

  times[DType::float32]["openblas/SkylakeX"] = 1 / 1.44;
  fastest = fastest_products(times, shipped);
  EXPECT_EQ(name_of(fastest, DType::float32), "openblas/SkylakeX");
  EXPECT_NEAR(speed_of(times, shipped, fastest, DType::float32), 1.2, 1e-12);
}

TEST(FastestProducts, HaveOneCoreTypeWhichFloat32Decides) {
  const ProductTimes times = {{DType::float32, {{"own", 1.0}, {"openblas/Haswell", 0.5}, {"openblas/SkylakeX", 0.8}}},
                              {DType::float64, {{"openblas/Haswell", 1.0}, {"openblas/SkylakeX", 0.1}}}};
  EXPECT_EQ(name_of(fastest_products(times, shipped), DType::float64), "openblas/Haswell");
  EXPECT_EQ(fastest_products(times, {.core_type = "SkylakeX"}).core_type, "Haswell");
}

TEST(MeasuredProducts, AreOfAMachineIfTwoMeasurementsAgreed) {
  MeasuredProducts products = {.shipped = shipped, .fastest = shipped, .kind = "zen4", .num_measurements = 4};
  products.fastest.bfloat16 = ProductKernels::native;
  products.times = {{DType::bfloat16, {{"widened", 3.61}, {"native", 1.0}}}};
  EXPECT_TRUE(products.of_machine().empty());
  EXPECT_THAT(to_text(products), HasSubstr("not kept, because no two of 4 measurements agreed"));
  products.is_kept = true;
  EXPECT_EQ(products.of_machine(), (ProductNames{{"kind", "zen4"},
                                                 {"float32", "own"},
                                                 {"float64", "openblas/Haswell"},
                                                 {"bfloat16", "native"},
                                                 {"float16", "widened"}}));
  EXPECT_EQ(to_text(products),
            "matmuls of zen4: float32 own, float64 openblas/Haswell, bfloat16 widened -> native "
            "(1.90 x), float16 widened");
  const auto json = to_json(products)["bfloat16"];
  EXPECT_EQ(json["shipped"], "widened");
  EXPECT_NEAR(json["speeds_of_fastest"]["widened"], 1 / 1.9, 1e-12);
}

// Where other tests of this process have loaded OpenBLAS, the kernels of its core type alone are measured.
TEST(MeasuredProducts, AreWhatThisProcessorCanDo) {
  const MeasuredProducts products = measure_products({.num_tokens = 16, .num_turns = 1, .most_seconds = 0});
  EXPECT_EQ(products.num_measurements, 2) << "two are compared, however short the time is";
  EXPECT_EQ(products.shipped.float32, default_products().float32);
  for (const DType dtype : product_dtypes) {
    EXPECT_EQ(obstacle_of(names_of(products.fastest), dtype), std::nullopt) << name_of(dtype);
    // float32 decides about the core type, which may be the slower one of float64.
    EXPECT_TRUE(dtype == DType::float64 || products.speed(dtype) >= 1) << name_of(dtype);
  }
}

}  // namespace
}  // namespace echelon
