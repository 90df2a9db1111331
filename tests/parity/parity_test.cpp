// Every layout equals one rank: losses, gradient norms, first gradients and updated weights, in float64.
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

namespace echelon::testing {
namespace {

struct Layout {
  int replicate = 1, shard = 1, tp = 1, pp = 1;
  bool sequence_parallel = false;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int microbatches = 2;
  Family family = Family::llama;
  bool tied = false;
  int layers = 0;  // 0: one more than stages, hence uneven

  [[nodiscard]] int data_parallel() const { return replicate * shard; }
};

std::string name_of(const Layout& layout) {
  std::ostringstream name;
  name << echelon::name_of(layout.family) << (layout.tied ? "_tied" : "") << "_replicate" << layout.replicate << "_shard" << layout.shard << "_tp" << layout.tp
       << (layout.sequence_parallel ? "sp" : "") << "_pp" << layout.pp;
  if (layout.pp > 1) name << (layout.schedule == PipelineSchedule::naive ? "_naive" : layout.schedule == PipelineSchedule::gpipe ? "_gpipe" : "_1f1b");
  name << "_layers" << layout.layers << "_m" << layout.microbatches;
  return name.str();
}

void PrintTo(const Layout& layout, std::ostream* out) { *out << name_of(layout); }

/// A tiny model whose vocabulary, heads and feed-forward width do not divide by most degrees.
ModelSpec tiny_model(const Layout& layout) {
  ModelSpec model = family_defaults(layout.family);
  const bool is_power_of_two = (layout.tp & (layout.tp - 1)) == 0;
  model.num_attention_heads = is_power_of_two ? 8 : 7;
  model.num_key_value_heads = layout.family == Family::gpt2 || !is_power_of_two ? model.num_attention_heads : 2;
  model.head_dim = 4;
  model.hidden_size = layout.family == Family::qwen3 ? 24 : model.num_attention_heads * model.head_dim;
  model.num_hidden_layers = layout.layers > 0 ? layout.layers : layout.pp + 1;
  model.intermediate_size = 45;
  model.vocab_size = 61;
  model.max_position_embeddings = 64;
  model.initializer_range = 0.15;
  model.tie_word_embeddings = layout.tied;
  return model;
}

RunConfig config_of(const Layout& layout) {
  RunConfig config;
  config.model = tiny_model(layout);
  config.training.steps = 10;
  config.training.seq_len = layout.sequence_parallel ? 4 * layout.tp : 12;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 2 * layout.microbatches * layout.data_parallel();
  config.training.dtype = "float64";
  config.optimizer.lr = 1e-2;
  // GPT-2's key biases have no gradient in theory: with 1e-8, rounding noise would be divided by little more than itself.
  config.optimizer.eps = 1e-7;
  config.lr_scheduler.warmup_steps = 3;
  config.parallelism.data_parallel_replicate_degree = layout.replicate;
  config.parallelism.data_parallel_shard_degree = layout.shard;
  config.parallelism.tensor_parallel_degree = layout.tp;
  config.parallelism.sequence_parallel = layout.sequence_parallel;
  config.parallelism.pipeline_parallel_degree = layout.pp;
  config.parallelism.pipeline_parallel_schedule = layout.schedule;
  return config;
}

/// The same model and global batches on one rank, one sequence at a time.
RunConfig one_rank(RunConfig config) {
  config.parallelism = {};
  config.training.micro_batch_size = 1;
  return config;
}

/// One-rank runs are shared by the layouts that they are compared with.
const Trajectory& baseline(const RunConfig& config) {
  static std::map<std::string, std::unique_ptr<Trajectory>> known;
  const ModelSpec& model = config.model;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(model.family), model.num_attention_heads, model.num_hidden_layers, model.tie_word_embeddings,
                  config.training.seq_len, config.training.global_batch_size, config.training.dtype, config.training.steps);
  auto& trajectory = known[key];
  if (!trajectory) trajectory = run_training(one_rank(config));
  return *trajectory;
}

void expect_equal(const Trajectory& actual, const Trajectory& expected, double scalar_tolerance, double tensor_tolerance, double lr) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], scalar_tolerance * std::abs(expected.losses[step])) << "loss of step " << step + 1;
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step], scalar_tolerance * std::abs(expected.grad_norms[step])) << "norm of step " << step + 1;
  }
  EXPECT_NEAR(actual.validation_loss, expected.validation_loss, scalar_tolerance * std::abs(expected.validation_loss));
  const Difference gradients = worst_difference(actual.first_gradients, expected.first_gradients, root_mean_square(expected.first_gradients));
  EXPECT_LE(gradients.error, tensor_tolerance) << "gradient of " << gradients.name;
  const Difference values = worst_difference(actual.values, expected.values, lr);
  EXPECT_LE(values.error, tensor_tolerance) << "weights of " << values.name;
}

/// Every (dp, tp, pp) with a product up to 8, with all that can be switched on it.
std::vector<Layout> grid() {
  std::vector<Layout> layouts;
  for (int dp = 1; dp <= 8; ++dp)
    for (int tp = 1; dp * tp <= 8; ++tp)
      for (int pp = 1; dp * tp * pp <= 8; ++pp)
        for (const bool sharded : {false, true})
          for (const bool sequence_parallel : {false, true})
            for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::naive}) {
              if ((sharded && dp == 1) || (sequence_parallel && tp == 1) || (schedule != PipelineSchedule::one_f_one_b && pp == 1)) continue;
              Layout layout = {
                  .replicate = sharded ? 1 : dp, .shard = sharded ? dp : 1, .tp = tp, .pp = pp, .sequence_parallel = sequence_parallel, .schedule = schedule};
              layout.tied = (dp + tp + pp) % 2 == 0;
              layout.microbatches = 1 + (dp + pp) % 3;
              layout.family = static_cast<Family>((dp + 2 * tp + 3 * pp) % 4);
              layouts.push_back(layout);
            }
  return layouts;
}

class Parity : public ::testing::TestWithParam<Layout> {};

TEST_P(Parity, EqualsOneRank) {
  const RunConfig config = config_of(GetParam());
  const auto actual = run_training(config, {.at_end = [&](RankRun& run, Mesh& mesh, Ops& ops) {
                                     expect_locks_hold(run, mesh, dynamic_cast<const CpuOps&>(ops), {.training = config.training.steps, .evaluation = 1});
                                   }});
  expect_equal(*actual, baseline(config), 1e-11, 1e-9, config.optimizer.lr);
}

std::string test_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }

INSTANTIATE_TEST_SUITE_P(Grid, Parity, ::testing::ValuesIn(grid()), test_name);

// Layouts that were reported wrong in other systems, or that the grid does not come by.
std::vector<Layout> rows() {
  const auto gpipe = PipelineSchedule::gpipe;
  return {
      // a tied embedding with pipeline and sharded optimizer, in each family that ties
      {.shard = 2, .pp = 2, .microbatches = 3, .family = Family::gpt2, .tied = true},
      {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .family = Family::qwen2, .tied = true},
      {.replicate = 2, .tp = 2, .pp = 2, .schedule = gpipe, .microbatches = 4, .family = Family::qwen3, .tied = true},
      // a data group of one rank with accumulation: gradients must not double from microbatch to microbatch
      {.microbatches = 7},
      {.pp = 3, .microbatches = 7, .layers = 8},
      // one microbatch on many stages; fewer microbatches than stages
      {.pp = 8, .microbatches = 1},
      {.pp = 6, .microbatches = 4, .layers = 13},
      // key/value heads on more ranks than there are heads, with and without sequence parallelism: replicas are summed and counted once
      {.shard = 2, .tp = 4, .microbatches = 3},
      {.tp = 8, .sequence_parallel = true, .microbatches = 2, .family = Family::qwen3},
      {.tp = 8, .microbatches = 2, .family = Family::qwen2, .tied = true},
      // heads, feed-forward width and vocabulary that do not divide
      {.tp = 3, .sequence_parallel = true, .microbatches = 2, .family = Family::gpt2, .tied = true},
      {.tp = 5, .microbatches = 2},
      {.replicate = 2, .tp = 3, .microbatches = 2, .family = Family::gpt2},
  };
}

INSTANTIATE_TEST_SUITE_P(Rows, Parity, ::testing::ValuesIn(rows()), test_name);

// 256 ranks on however few cores: tensor 4 x pipeline 8 x data 8.
TEST(ManyRanks, TwoHundredAndFiftySixEqualOne) {
  for (const bool sharded : {false, true}) {
    RunConfig config =
        config_of({.replicate = sharded ? 1 : 8, .shard = sharded ? 8 : 1, .tp = 4, .pp = 8, .sequence_parallel = sharded, .tied = true, .layers = 8});
    config.training.steps = 3;
    const auto actual = run_training(config);
    expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
  }
}

class Float32 : public ::testing::TestWithParam<Layout> {};

// In float32 the first steps agree as far as its rounding lets them.
TEST_P(Float32, FirstLossesEqualOneRank) {
  RunConfig config = config_of(GetParam());
  config.training.dtype = "float32";
  config.training.steps = 3;
  const auto actual = run_training(config);
  const auto expected = run_training(one_rank(config));
  for (std::size_t step = 0; step < expected->losses.size(); ++step) EXPECT_NEAR(actual->losses[step], expected->losses[step], 1e-5 * expected->losses[step]);
}

// bfloat16 keeps 8 bits: a layout that is wrong differs by far more.
TEST_P(Float32, Bfloat16FollowsFloat32) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 10;
  config.training.dtype = "bfloat16";
  const auto actual = run_training(config);
  config.training.dtype = "float32";
  const auto expected = run_training(one_rank(config));
  for (std::size_t step = 0; step < expected->losses.size(); ++step) EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.02 * expected->losses[step]);
}

INSTANTIATE_TEST_SUITE_P(Rows, Float32,
                         ::testing::Values(Layout{.replicate = 2}, Layout{.shard = 4}, Layout{.tp = 4},
                                           Layout{.tp = 2, .sequence_parallel = true, .family = Family::gpt2, .tied = true}, Layout{.pp = 4, .microbatches = 3},
                                           Layout{.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 4}),
                         test_name);

}  // namespace
}  // namespace echelon::testing
