// The oracle's values for tests/interop/variants.
#include "interop/comparison.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

// Other kinds of RoPE, windows and biases, and config.json as transformers 4 wrote it. Few processes, many models.
class InteropVariants : public ::testing::TestWithParam<Precision> {};

TEST_P(InteropVariants, ComputeAndTrain) {
  int num_models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/variants")) {
    SCOPED_TRACE(entry.path().string());
    const Fixture variant(entry.path().filename().string(), "variants");
    expect_first_step(variant, GetParam());
    expect_training(variant, GetParam());
    ++num_models;
  }
  EXPECT_GE(num_models, 18);
}

INSTANTIATE_TEST_SUITE_P(Rows, InteropVariants,
                         ::testing::Values(Precision{DType::float64, 1e-10, 1e-10},
                                           Precision{DType::float32, 1e-5, 1e-5}),
                         [](const auto& tested) { return std::string(name_of(tested.param.dtype)); });

}  // namespace
}  // namespace echelon::testing
