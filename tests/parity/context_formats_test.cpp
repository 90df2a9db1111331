// Every method of context parallelism in every format: the losses of one rank, and the same bits in two runs.
#include "parity/layout.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

// bfloat16 keeps 8 bits, float16 11: a layout that is wrong differs by far more.
double tolerance_of_losses(DType dtype) {
  switch (dtype) {
    case DType::float32: return 1e-5;
    case DType::float16: return 5e-3;
    default: return 0.02;
  }
}

TEST(ContextFormats, LossesAreThoseOfOneRankAndRunsAreEqualToTheBit) {
  using enum ContextMethod;
  for (const ContextMethod method : {ring, all_gather, ulysses, ulysses_ring})
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(method), name_of(dtype)));
      RunConfig config = config_of({.tp = 1,
                                    .microbatches = 2,
                                    .layers = 2,
                                    .documents = true,
                                    .cp = 4,
                                    .seq_len = 13,
                                    .method = method,
                                    .ulysses = method == ulysses_ring ? 2 : 0});
      config.training.dtype = dtype;
      config.training.steps = 3;
      if (dtype == DType::float16) config.grad_scaler.init_scale = 1024;
      const auto first = run_training(config), second = run_training(config);
      EXPECT_EQ(first->losses, second->losses);
      EXPECT_EQ(first->grad_norms, second->grad_norms);
      EXPECT_EQ(worst_difference(first->values, second->values, 1).error, 0);
      RunConfig exact = config;
      exact.training.dtype = DType::float32;
      exact.grad_scaler = {};
      const auto expected = run_training(one_rank(exact));
      for (std::size_t step = 0; step < expected->losses.size(); ++step)
        EXPECT_NEAR(first->losses[step], expected->losses[step], tolerance_of_losses(dtype) * expected->losses[step]);
    }
}

}  // namespace
}  // namespace echelon::testing
