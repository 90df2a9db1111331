// The oracle's values for tests/interop/variants.
#include "interop/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  EXPECT_GE(num_models, 32);
}

// The experts that no token of the first step chose, where the rows above compare gradients.
TEST(IdleExperts, HaveGradientsOfZero) {
  for (const char* name : {"mixtral_idle", "qwen2_moe_idle", "qwen3_moe_idle", "dots1_idle", "olmoe_idle",
                           "deepseek_v2_idle", "deepseek_v3_idle"}) {
    const Fixture variant(name, "variants");
    std::int64_t num_idle = 0;
    for (const auto& [tensor, numbers] : variant.expected)
      if (tensor.starts_with("grad.") && tensor.find(".experts.0.") != std::string::npos) {
        ++num_idle;
        EXPECT_EQ(std::ranges::count(numbers, 0.0), std::ssize(numbers)) << name << " " << tensor;
      }
    EXPECT_EQ(num_idle, 3 * variant.model.mixture.num_layers_of(variant.model.num_hidden_layers)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, InteropVariants,
                         ::testing::Values(Precision{DType::float64, 1e-10, 1e-10},
                                           Precision{DType::float32, 1e-5, 1e-5}),
                         [](const auto& tested) { return std::string(name_of(tested.param.dtype)); });

}  // namespace
}  // namespace echelon::testing
