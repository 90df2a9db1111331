// Checkpoints of runs that freeze their routers: they have the routers' weights, but no moments of them.
#include "resume/small_run.h"

#include "base/error.h"
#include "checkpoint/model_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool is_of_router(std::string_view parameter) { return parameter.ends_with(".mlp.gate.weight"); }

std::vector<double> weight_in(const std::filesystem::path& model, const Manifest::Parameter& parameter) {
  std::vector<double> values(static_cast<std::size_t>(parameter.sizes.num_elements()));
  ModelReader(model).read_exactly(parameter.name, TensorSlice(parameter.sizes), values.data());
  return values;
}

struct RouterFormat {
  const char* name;
  DType dtype;
  bool stores_remainders = false;
};

void PrintTo(const RouterFormat& format, std::ostream* out) { *out << format.name; }

class FrozenRouterResume : public SmallRun, public ::testing::WithParamInterface<RouterFormat> {
 protected:
  /// On the model that another seed gives: its routers can come from files alone.
  [[nodiscard]] RunConfig frozen_config(const std::string& folder, int zero_level) const {
    RunConfig config = this->config(folder);
    use_experts(config);
    config.training.dtype = GetParam().dtype;
    config.training.steps = 6;
    config.moe.freeze_router = true;
    config.optimizer.store_param_remainders = GetParam().stores_remainders;
    config.checkpoint.initial_load_path = (output("base") / "model").string();
    config.parallelism.data_parallel_shard_degree = config.parallelism.tensor_parallel_degree = 2;
    config.parallelism.sequence_parallel = true;
    config.parallelism.expert_parallel_degree = 2;
    config.parallelism.zero_level = zero_level;
    if (zero_level == 2) config.checkpoint.async_mode = AsyncMode::async;
    return config;
  }
};

// The same bits from ZeRO-1 to ZeRO-3, also of checkpoints that are written while the run goes on. Checkpoints and the
// model that the run writes have the routers that it read.
TEST_P(FrozenRouterResume, IsTheRunThatWasNotInterrupted) {
  RunConfig base = frozen_config("base", 1);
  base.checkpoint.initial_load_path.clear();
  base.training.seed = 7;
  base.training.steps = 2;
  (void)run(base);
  for (const int zero_level : {1, 2, 3}) {
    const std::string plain = fmt::format("plain-{}", zero_level), cut = fmt::format("cut-{}", zero_level);
    SCOPED_TRACE(plain);
    const Steps expected = run(frozen_config(plain, zero_level));
    (void)run(frozen_config(cut, zero_level), 3);
    EXPECT_EQ(run(frozen_config(cut, zero_level)), after(3, expected));
    const StateValues state = read_state(checkpoint(plain, 6));
    EXPECT_EQ(read_state(checkpoint(cut, 6)), state);

    std::int64_t num_routers = 0;
    const StateReader reader(checkpoint(cut, 6));
    reader.verify();
    for (const Manifest::Parameter& parameter : reader.manifest().parameters) {
      if (!is_of_router(parameter.name)) {
        EXPECT_THAT(parameter.states, IsEmpty()) << parameter.name;
        continue;
      }
      ++num_routers;
      EXPECT_THAT(parameter.states, ElementsAre("weight")) << parameter.name;
      EXPECT_FALSE(state.contains("exp_avg/" + parameter.name));
      const std::vector<double> initial = weight_in(output("base") / "model", parameter);
      EXPECT_TRUE(std::ranges::any_of(initial, [](double value) { return value != 0; }));
      EXPECT_EQ(state.at("weight/" + parameter.name), initial) << parameter.name;
      EXPECT_EQ(weight_in(output(cut) / "model", parameter), initial) << parameter.name;
      EXPECT_EQ(weight_in(checkpoint(cut, 6), parameter), initial) << parameter.name;
    }
    EXPECT_EQ(num_routers, 3);
  }
  RunConfig moving = frozen_config("cut-1", 1);
  moving.moe.freeze_router = false;
  moving.checkpoint.load = "latest";
  EXPECT_THAT(
      [&] { (void)run(moving); },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("other moments: moe.freeze_router: was true, is false")));
}

INSTANTIATE_TEST_SUITE_P(Formats, FrozenRouterResume,
                         ::testing::Values(RouterFormat{"float64", DType::float64},
                                           RouterFormat{"float32", DType::float32},
                                           RouterFormat{"bfloat16", DType::bfloat16},
                                           RouterFormat{"remainders", DType::bfloat16, true},
                                           RouterFormat{"float16", DType::float16}),
                         [](const auto& format) { return format.param.name; });

}  // namespace
}  // namespace echelon::testing
