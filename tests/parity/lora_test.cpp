// Adapters in every kind of layout: what is trained equals one rank's, what is frozen stays, and what is planned is
// used.
#include "engine/types/layout_types.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"
#include "spec/lora/lora_parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon::testing {
namespace {

std::vector<Layout> lora_rows() {
  using Kind = PipelineSchedule;
  return {
      {.tp = 2},
      {.tp = 4, .sequence_parallel = true, .family = Family::qwen2},  // two ranks have the same kv heads
      {.replicate = 2, .microbatches = 3, .family = Family::gpt2, .tied = true},
      {.shard = 2, .tied = true, .zero = 1},
      {.shard = 3, .microbatches = 3, .family = Family::gpt2, .zero = 2},
      {.shard = 2, .zero = 3},
      {.shard = 2, .pp = 2, .tied = true, .zero = 3, .reshard = ReshardAfterForward::never},
      {.replicate = 2, .shard = 2, .tp = 2, .zero = 3, .reshard = ReshardAfterForward::step},
      {.replicate = 2, .shard = 2, .family = Family::qwen3, .tied = true, .zero = 2},
      {.pp = 3, .microbatches = 4, .tied = true},
      {.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = Kind::zb_h1, .microbatches = 4},
      {.shard = 2, .pp = 2, .schedule = Kind::zb_v, .microbatches = 5, .family = Family::gpt2, .tied = true},
      {.pp = 2, .schedule = Kind::interleaved_one_f_one_b, .virtual_stages = 2, .microbatches = 4},
      {.cp = 2},
      {.shard = 2, .tp = 2, .zero = 3, .documents = true, .cp = 2, .balancer = LoadBalancer::striped},
      {.tp = 2, .sequence_parallel = true, .recompute = whole_block},
      {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .zero = 3, .recompute = whole_block},
      {.tp = 2, .family = Family::phi3},
      {.shard = 2, .tp = 2, .pp = 2, .family = Family::phi3, .zero = 3},
      {.cp = 3, .method = ContextMethod::all_gather},
  };
}

RunConfig lora_config(const Layout& layout) {
  RunConfig config = config_of(layout);
  config.training.steps = 5;
  config.lora = {.rank = 3, .alpha = 7, .use_rslora = layout.tied};
  if (layout.pp == 3) config.lora.target_modules = {"q_proj", "down_proj"};
  return config;
}

/// Of these, every kind of module: the table and the head or what ties them, norms, and linear layers with biases.
std::vector<Layout> saved_module_rows() {
  using Kind = PipelineSchedule;
  return {
      {.tp = 2},
      {.tp = 2, .family = Family::gpt2, .tied = true},
      {.tp = 4, .sequence_parallel = true, .family = Family::qwen2},
      {.tp = 2, .sequence_parallel = true, .family = Family::phi3},
      {.replicate = 2, .shard = 2, .family = Family::qwen3, .tied = true, .zero = 1},
      {.shard = 2, .pp = 2, .tied = true, .zero = 2},
      {.shard = 3, .microbatches = 3, .family = Family::gpt2, .zero = 3},
      {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .tied = true, .zero = 3},
      {.pp = 2, .schedule = Kind::interleaved_one_f_one_b, .virtual_stages = 2, .microbatches = 4},
      {.shard = 2, .pp = 2, .schedule = Kind::zb_v, .microbatches = 5, .family = Family::gpt2, .tied = true},
      {.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = Kind::zb_h1, .microbatches = 4},
      {.shard = 2, .tp = 2, .zero = 3, .cp = 2, .recompute = whole_block},
  };
}

RunConfig saving_config(const Layout& layout) {
  RunConfig config = lora_config(layout);
  switch (layout.family) {
    case Family::gpt2: config.lora.modules_to_save = {"lm_head", "wpe", "c_fc", "ln_1"}; break;
    case Family::phi3: config.lora.modules_to_save = {"embed_tokens", "qkv_proj", "model.norm"}; break;
    case Family::qwen3: config.lora.modules_to_save = {"norm"}; break;
    case Family::qwen2: config.lora.modules_to_save = {"lm_head", "self_attn"}; break;
    default: config.lora.modules_to_save = {"lm_head", "embed_tokens", "norm", "down_proj"};
  }
  return config;
}

const Trajectory& lora_baseline(const RunConfig& config) {
  static std::vector<std::pair<RunConfig, std::unique_ptr<Trajectory>>> known;
  const RunConfig alone = one_rank(config);
  for (const auto& [same, trajectory] : known)
    if (same == alone) return *trajectory;
  return *known.emplace_back(alone, run_training(alone)).second;
}

void expect_parity(const RunConfig& config) {
  const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                     expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                   }});
  const Trajectory& expected = lora_baseline(config);
  expect_equal(*actual, expected, 1e-11, 1e-9, config.optimizer.lr);
  RunConfig before = config;
  before.training.steps = 1;
  before.lr_scheduler.warmup_steps = 0;
  before.optimizer.lr = 0;
  const auto untouched = run_training(one_rank(before));
  std::set<std::string> trained;
  for (const NamedShape& parameter : saved_parameters(config.model, config.lora)) trained.insert(parameter.name);
  for (const auto& [name, values] : actual->values.tensors())
    EXPECT_EQ(values == untouched->values.tensors().at(name), !trained.contains(name)) << name;
  EXPECT_EQ(actual->first_gradients.tensors().size(), trained.size()) << "others have no gradient";
}

class LoraParity : public ::testing::TestWithParam<Layout> {};

// Claim (parity): 32 layouts train the adapters and modules_to_save that one rank trains, alone.
// Bound: 5 steps in float64: losses and norms to 1e-11, weights to 1e-9; planned bytes equal.
// Tests: LoraParity|SavedModuleParity
TEST_P(LoraParity, EqualsOneRank) { expect_parity(lora_config(GetParam())); }

/// Experts, alone and over ranks, that drop rows or not, with every axis, level of sharding and kind of schedule.
std::vector<Layout> mixture_lora_rows() {
  std::vector<Layout> layouts;
  for (const std::vector<Layout>& some : {expert_rows(), expert_parallel_rows()})
    for (const Layout& layout : some) layouts.push_back(layout);
  const std::vector<Layout> dropping = capacity_rows();
  layouts.insert(layouts.end(), dropping.begin(), dropping.begin() + 4);
  for (Layout& layout : layouts) layout.router_losses = false;
  return layouts;
}

class MixtureLoraParity : public ::testing::TestWithParam<Layout> {};

// Claim (parity): Next to adapters of mixtures, experts and routers are frozen on every layout.
// Bound: 5 steps in float64: losses and norms to 1e-11, weights to 1e-9; planned bytes equal.
// Tests: MixtureLoraParity
TEST_P(MixtureLoraParity, EqualsOneRank) {
  RunConfig config = lora_config(GetParam());
  config.lora.target_modules = {"all-linear"};
  EXPECT_NO_THROW(check_layout_types(Blueprint(config)));
  expect_parity(config);
}

class SavedModuleParity : public ::testing::TestWithParam<Layout> {};

TEST_P(SavedModuleParity, EqualsOneRank) {
  const RunConfig config = saving_config(GetParam());
  EXPECT_FALSE(whole_parameters(config.model, config.lora).empty());
  expect_parity(config);
}

// Reduced precision, gradients that are converted for their reduction, and states in other formats.
TEST(LoraFormats, FollowFloat32) {
  RunConfig config = lora_config({.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .zero = 3});
  config.training.dtype = DType::float32;
  const auto expected = run_training(one_rank(config));
  config.training.dtype = DType::bfloat16;
  for (const bool converts : {false, true}) {
    for (const std::int64_t zero : {1, 2, 3}) {
      config.parallelism.zero_level = zero;
      if (converts) config.training.reduce_dtype = DType::bfloat16;
      config.optimizer.store_param_remainders = converts;
      const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                         expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                       }});
      for (std::size_t step = 0; step < expected->losses.size(); ++step)
        EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.02 * expected->losses[step]) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, SavedModuleParity, ::testing::ValuesIn(saved_module_rows()),
                         [](const auto& layout) { return name_of(layout.param); });
INSTANTIATE_TEST_SUITE_P(Rows, MixtureLoraParity, ::testing::ValuesIn(mixture_lora_rows()),
                         [](const auto& layout) { return name_of(layout.param); });
INSTANTIATE_TEST_SUITE_P(Rows, LoraParity, ::testing::ValuesIn(lora_rows()),
                         [](const auto& layout) { return name_of(layout.param); });

}  // namespace
}  // namespace echelon::testing
