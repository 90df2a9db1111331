// One layout for each family and dtype: what runs everywhere, also where everything is slow (scripts/test_arm).
#include "parity/layout.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

struct Format {
  DType dtype;
  double loss_tolerance, norm_tolerance;  // relative, against one rank in float64 or float32
};

class Families : public ::testing::TestWithParam<std::tuple<Family, Format>> {};

TEST_P(Families, EqualOneRank) {
  const auto& [family, format] = GetParam();
  RunConfig config = config_of(
      {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .family = family, .tied = true});
  config.training.steps = 3;
  config.optimizer.lr = 1e-3;
  config.training.dtype = format.dtype == DType::float64 ? DType::float64 : DType::float32;
  const auto expected = run_training(one_rank(config));
  config.training.dtype = format.dtype;
  if (format.dtype == DType::float16) config.grad_scaler.init_scale = 1024;
  const auto actual = run_training(config);
  ASSERT_EQ(actual->losses.size(), expected->losses.size());
  for (std::size_t step = 0; step < expected->losses.size(); ++step) {
    const double loss = expected->losses[step], norm = expected->grad_norms[step];
    EXPECT_NEAR(actual->losses[step], loss, format.loss_tolerance * loss) << step;
    EXPECT_NEAR(actual->grad_norms[step], norm, format.norm_tolerance * norm) << step;
  }
}

// The tolerances of the tests of each dtype alone.
constexpr Format formats[] = {{DType::float64, 1e-11, 1e-11},
                              {DType::float32, 1e-5, 1e-4},
                              {DType::bfloat16, 0.02, 0.1},
                              {DType::float16, 0.003, 0.03}};

INSTANTIATE_TEST_SUITE_P(Rows, Families,
                         ::testing::Combine(::testing::Values(Family::gpt2, Family::llama, Family::qwen2,
                                                              Family::qwen3),
                                            ::testing::ValuesIn(formats)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", echelon::name_of(std::get<0>(tested.param)),
                                              name_of(std::get<1>(tested.param).dtype));
                         });

}  // namespace
}  // namespace echelon::testing
