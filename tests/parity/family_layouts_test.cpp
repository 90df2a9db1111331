// Every family in every kind of layout: what one rank computes. The models are those of tests/interop/fixtures, so that
// each family's config.json decides what is computed; with random weights of their own.
#include "checkpoint/model_reader.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

namespace echelon::testing {
namespace {

const std::filesystem::path fixtures = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures";

/// Of four heads, two kv heads and three layers. The batch is the same, so that one rank runs once with documents and
/// once without. The last one mixes all others.
std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = {{.tp = 2},
                                 {.tp = 4},
                                 {.tp = 2, .sequence_parallel = true},
                                 {.pp = 2, .layers_per_stage = {1, 2}},
                                 {.shard = 2, .zero = 3},
                                 {.replicate = 2, .recompute = whole_block},
                                 {.tp = 2, .documents = true, .recompute = attention_internals},
                                 {.shard = 2,
                                  .tp = 2,
                                  .pp = 2,
                                  .sequence_parallel = true,
                                  .zero = 3,
                                  .layers_per_stage = {2, 1},
                                  .documents = true,
                                  .recompute = whole_block}};
  for (Layout& layout : layouts) {
    layout.layers = 3;
    layout.seq_len = 12;
    layout.microbatches = 4 / (layout.replicate * layout.shard);
  }
  return layouts;
}

RunConfig config_of_family(const std::string& fixture, const Layout& layout) {
  RunConfig config = config_of(layout);
  config.model = read_model_spec(fixtures / fixture);
  config.model.set_num_layers(layout.layers);
  config.model.initializer_range = 0.15;
  config.training.steps = 3;
  config.optimizer.eps = 1e-6;  // key biases have no gradient in theory (sweep/run_of.cpp)
  if (layout.documents) {
    config.data.reset_position_ids = config.data.eod_mask_loss = true;
    config.data.packing = Packing::best_fit;
  }
  return config;
}

std::vector<std::string> all_fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Claim (parity): Tiny models of all families compute in eight kinds of layout what one rank
//   computes.
// Bound: parity's bounds.
// Tests: FamilyLayouts
class FamilyLayouts : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyLayouts, EqualOneRank) {
  std::map<bool, std::unique_ptr<Trajectory>> of_one_rank;
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(name_of(layout));
    const RunConfig config = config_of_family(GetParam(), layout);
    auto& expected = of_one_rank[layout.documents];
    if (!expected) expected = run_training(one_rank(config));
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
  }
}

// So that no hole appears: a fixture of each published model_type, with four heads (two of keys and values, where the
// family groups them), and the eight kinds of layout.
TEST(KindsOfFamilyLayouts, AreOfAllFamiliesAndKinds) {
  std::map<std::string, std::set<std::int64_t>> kv_heads;
  for (const std::string& fixture : all_fixtures()) {
    const ModelSpec model = read_model_spec(fixtures / fixture);
    if (model.num_attention_heads == 4) kv_heads[std::string(name_of(model.family))].insert(model.num_key_value_heads);
  }
  for (const char* family : {"llama", "mistral", "ministral3", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3",
                             "olmo2", "olmo3", "smollm3", "granite", "starcoder2"})
    EXPECT_TRUE(kv_heads[family].contains(2)) << family;
  for (const char* family : {"gpt_neox", "gpt2"}) EXPECT_TRUE(kv_heads[family].contains(4)) << family;

  const std::vector<Layout> layouts = all_layouts();
  const auto is_uneven = [](const Layout& each) {
    return each.layers_per_stage.size() > 1 && each.layers_per_stage.front() != each.layers_per_stage.back();
  };
  const std::vector<std::pair<std::string, std::function<bool(const Layout&)>>> kinds = {
      {"tp 2", [](const Layout& each) { return each.tp == 2; }},
      {"tp 4", [](const Layout& each) { return each.tp == 4; }},
      {"sp", [](const Layout& each) { return each.tp > 1 && each.sequence_parallel; }},
      {"uneven pp", is_uneven},
      {"ZeRO-3", [](const Layout& each) { return each.shard > 1 && each.zero == 3; }},
      {"recompute", [](const Layout& each) { return !(each.recompute == Layout().recompute); }},
      {"packed documents", [](const Layout& each) { return each.documents; }},
      {"all mixed", [&](const Layout& each) {
         return each.tp > 1 && each.sequence_parallel && is_uneven(each) && each.zero == 3 && each.documents &&
                !(each.recompute == Layout().recompute);
       }}};
  for (const auto& [kind, is_one] : kinds) EXPECT_TRUE(std::ranges::any_of(layouts, is_one)) << kind;
  EXPECT_GE(layouts.size(), 8U);
}

// Experts over ranks, context parallelism, and one head on each rank, next to latents that are whole on each rank.
TEST(DeepSeekLayouts, EqualOneRank) {
  std::vector<Layout> layouts = {{.shard = 2, .ep = 2},
                                 {.tp = 4},
                                 {.tp = 4, .sequence_parallel = true},
                                 {.tp = 4, .sequence_parallel = true, .ep = 4},
                                 {.shard = 2, .tp = 2, .sequence_parallel = true, .ep = 4},
                                 {.shard = 2, .pp = 2, .zero = 3, .recompute = whole_block, .ep = 2},
                                 {.shard = 2, .cp = 2, .ep = 4}};
  for (const std::string fixture : {"deepseek_v3", "deepseek_v2_groups"}) {
    std::unique_ptr<Trajectory> expected;
    for (Layout& layout : layouts) {
      layout.layers = 3;
      layout.seq_len = 12;
      layout.microbatches = 4 / layout.shard;
      SCOPED_TRACE(fixture + name_of(layout));
      const RunConfig config = config_of_family(fixture, layout);
      if (!expected) expected = run_training(one_rank(config));
      expect_equal(*run_training(config), *expected, 1e-11, 1e-9, config.optimizer.lr);
    }
  }
}

// Of latents that are whole on each rank, of heads that are not, of shared experts and of a dense layer.
TEST(DeepSeekLayouts, AdaptersEqualOneRanks) {
  std::vector<Layout> layouts = {{.tp = 2},
                                 {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .ep = 4},
                                 {.tp = 2,
                                  .pp = 2,
                                  .sequence_parallel = true,
                                  .schedule = PipelineSchedule::zb_h1,
                                  .recompute = {BlockOperation::qkv_proj},
                                  .ep = 2},
                                 {.shard = 2, .pp = 2, .zero = 3, .recompute = whole_block, .ep = 2},
                                 {.shard = 2, .cp = 2, .ep = 4}};
  for (const std::string fixture : {"deepseek_v3", "deepseek_v2_groups"}) {
    std::unique_ptr<Trajectory> expected;
    for (Layout& layout : layouts) {
      layout.layers = 3;
      layout.seq_len = 12;
      layout.microbatches = 2;
      SCOPED_TRACE(fixture + name_of(layout));
      RunConfig config = config_of_family(fixture, layout);
      config.lora = {.rank = 3, .alpha = 7};
      config.training.global_batch_size = 8;
      if (!expected) expected = run_training(one_rank(config));
      const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                         expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                       }});
      expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FamilyLayouts, ::testing::ValuesIn(all_fixtures()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace echelon::testing
