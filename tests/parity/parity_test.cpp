// Every layout equals one rank: losses, gradient norms, first gradients and updated weights, in float64.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"
#include "tensor/remainder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

namespace echelon::testing {
namespace {

/// One-rank runs are shared by the layouts that they are compared with.
const Trajectory& baseline(const RunConfig& config) {
  static std::map<std::string, std::unique_ptr<Trajectory>> known;
  const ModelSpec& model = config.model;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(model.family),
                  model.num_attention_heads, model.num_hidden_layers, model.tie_word_embeddings,
                  config.training.seq_len, config.training.global_batch_size, name_of(config.training.dtype),
                  config.training.steps, config.data.reset_attention_mask, config.data.reset_position_ids,
                  model.sliding_window, model.mixture.num_experts, model.mixture.decoder_sparse_step,
                  config.moe.z_loss_coeff, config.moe.capacity_factor, name_of(config.moe.capacity_order));
  auto& trajectory = known[key];
  if (!trajectory) trajectory = run_training(one_rank(config));
  return *trajectory;
}

// Claim (parity): Every layout of a grid of 142 layouts up to eight ranks, and 93 more up to 16,
//   computes what one rank computes.
// Bound: 10 steps in float64: losses and norms to 1e-11; every gradient of the first step and
//   every weight after the last to 1e-9.
// Tests: Parity
class Parity : public ::testing::TestWithParam<Layout> {};

TEST_P(Parity, EqualsOneRank) {
  const RunConfig config = config_of(GetParam());
  const Blueprint blueprint(config);
  for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
    EXPECT_EQ(check(blueprint.programs(kind), blueprint.schedule(), blueprint.lowering(kind)),
              std::vector<std::string>());
  const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                     expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                   }});
  expect_equal(*actual, baseline(config), 1e-11, 1e-9, config.optimizer.lr);
}

// Claim (parity): The order of the axes over the ranks (`parallelism.order`, such as Megatron's
//   `tp-cp-dp-pp`) changes no bit, and a checkpoint of one order loads in another.
// Bound: identical bits in float32 and float64.
// Tests: Orders|AnOrder
//
// The order of the axes says where ranks run, never in which order they add.
TEST(Orders, ChangeNoBit) {
  for (const Layout& layout : order_rows()) {
    RunConfig config = config_of(layout);
    config.training.dtype = DType::float32;
    config.training.steps = 3;
    const auto actual = run_training(config);
    config.parallelism.order = {};
    const auto expected = run_training(config);
    EXPECT_EQ(actual->losses, expected->losses) << name_of(layout);
    EXPECT_EQ(actual->grad_norms, expected->grad_norms) << name_of(layout);
    EXPECT_EQ(worst_difference(actual->values, expected->values, 1).error, 0) << name_of(layout);
  }
}

class EverySchedule : public ::testing::TestWithParam<Layout> {};

TEST_P(EverySchedule, EqualsOneRank) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 4;
  const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                     expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                   }});
  expect_equal(*actual, baseline(config), 1e-11, 1e-9, config.optimizer.lr);
}

std::string test_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }

// Claim (plans): Planned bytes are the allocated ones; planned matrix products and traffic are
//   the counted ones.
// Bound: equal, for every layout of the parity grid.
// Tests: Parity
INSTANTIATE_TEST_SUITE_P(Grid, Parity, ::testing::ValuesIn(grid()), test_name);

INSTANTIATE_TEST_SUITE_P(Rows, Parity, ::testing::ValuesIn(rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Context, Parity, ::testing::ValuesIn(context_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Documents, Parity, ::testing::ValuesIn(document_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(ContextMethods, Parity, ::testing::ValuesIn(context_method_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Windows, Parity, ::testing::ValuesIn(window_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Experts, Parity, ::testing::ValuesIn(expert_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Capacity, Parity, ::testing::ValuesIn(capacity_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(ExpertParallel, Parity, ::testing::ValuesIn(expert_parallel_rows()), test_name);

// Claim (schedules): Every schedule, with one to four ranks and with data, tensor and sequence
//   parallelism and ZeRO-1 alternately, computes what one rank computes. Its planned memory and
//   traffic are the used ones.
// Bound: 147 layouts: losses to 1e-11, bytes equal.
// Tests: EverySchedule
INSTANTIATE_TEST_SUITE_P(Rows, EverySchedule, ::testing::ValuesIn(schedule_rows()), test_name);

// Claim (parity): 1,024 ranks in one process compute what one rank computes, in the layout that
//   textbooks give for 70 B parameters: tensor 8 x pipeline 8 x data 16, eight microbatches,
//   sequence parallel, ZeRO-1. So do 256 ranks (4 x 8 x 8), and 1,024 with 128 experts over 64
//   ranks.
// Bound: three steps: parity's bounds.
// Tests: ManyRanks
//
// 256 ranks on however few cores: tensor 4 x pipeline 8 x data 8.
TEST(ManyRanks, TwoHundredAndFiftySixEqualOne) {
  for (const bool sharded : {false, true}) {
    RunConfig config = config_of({.replicate = sharded ? 1 : 8,
                                  .shard = sharded ? 8 : 1,
                                  .tp = 4,
                                  .pp = 8,
                                  .sequence_parallel = sharded,
                                  .tied = true,
                                  .layers = 8});
    config.training.steps = 3;
    const auto actual = run_training(config);
    expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
  }
}

// The textbook's layout of 70 B parameters on 1,024 devices: tensor 8 x pipeline 8 x data 16, eight microbatches per
// pipeline (examples/many_ranks.toml).
TEST(ManyRanks, AThousandAndTwentyFourEqualOne) {
  RunConfig config =
      config_of({.shard = 16, .tp = 8, .pp = 8, .sequence_parallel = true, .microbatches = 8, .layers = 8});
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = 16 * 8;
  config.training.seq_len = 8;
  config.training.steps = 3;
  const auto actual = run_training(config);
  expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
}

// The same number with context parallelism: tensor 4 x context 8 x pipeline 4 x data 8.
TEST(ManyRanks, AThousandAndTwentyFourWithContextParallelismEqualOne) {
  RunConfig config = config_of({.shard = 8,
                                .tp = 4,
                                .pp = 4,
                                .sequence_parallel = true,
                                .microbatches = 4,
                                .layers = 4,
                                .cp = 8,
                                .seq_len = 37});
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = 8 * 4;
  config.training.steps = 3;
  const auto actual = run_training(config);
  expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
}

// Claim (parity): The same layouts compute the same where operations and messages complete late,
//   with their results poisoned until then.
// Bound: parity's bounds.
// Tests: Delayed
class Delayed : public ::testing::TestWithParam<Layout> {};

// Operations and collectives that complete late, with poison where their results will be: a wait that is missing
// anywhere shows in the numbers.
TEST_P(Delayed, EqualsOneRank) {
  const RunConfig config = config_of(GetParam());
  const auto actual = run_training(config, {.interpose = delayed});
  expect_equal(*actual, baseline(config), 1e-11, 1e-9, config.optimizer.lr);
}

INSTANTIATE_TEST_SUITE_P(Grid, Delayed, ::testing::ValuesIn(grid()), test_name);
INSTANTIATE_TEST_SUITE_P(Rows, Delayed, ::testing::ValuesIn(rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Context, Delayed, ::testing::ValuesIn(context_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Documents, Delayed, ::testing::ValuesIn(document_rows()), test_name);
/// Every second row: delays take time.
std::vector<Layout> delayed_method_rows() {
  std::vector<Layout> chosen;
  int index = 0;
  for (const Layout& layout : context_method_rows())
    if (index++ % 2 == 0) chosen.push_back(layout);
  return chosen;
}
INSTANTIATE_TEST_SUITE_P(ContextMethods, Delayed, ::testing::ValuesIn(delayed_method_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Windows, Delayed, ::testing::ValuesIn(window_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(Experts, Delayed, ::testing::ValuesIn(expert_rows()), test_name);
INSTANTIATE_TEST_SUITE_P(ExpertParallel, Delayed, ::testing::ValuesIn(expert_parallel_rows()), test_name);

class Float32 : public ::testing::TestWithParam<Layout> {};

// In float32 the first steps agree as far as its rounding lets them.
TEST_P(Float32, FirstLossesEqualOneRank) {
  RunConfig config = config_of(GetParam());
  config.training.dtype = DType::float32;
  config.training.steps = 3;
  const auto actual = run_training(config);
  const Trajectory& expected = baseline(config);
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(actual->losses[step], expected.losses[step], 1e-5 * expected.losses[step]);
}

INSTANTIATE_TEST_SUITE_P(Grid, Float32, ::testing::ValuesIn(grid()), test_name);
INSTANTIATE_TEST_SUITE_P(Rows, Float32, ::testing::ValuesIn(rows()), test_name);

class Bfloat16 : public ::testing::TestWithParam<Layout> {};

// bfloat16 keeps 8 bits: a layout that is wrong differs by far more.
TEST_P(Bfloat16, LossesFollowFloat32) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 10;
  config.training.dtype = DType::bfloat16;
  const auto actual = run_training(config);
  config.training.dtype = DType::float32;
  const auto expected = run_training(one_rank(config));
  for (std::size_t step = 0; step < expected->losses.size(); ++step)
    EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.02 * expected->losses[step]);
}

// Gradients in bfloat16, and gradients that are converted for their reduction: a little rounding, and the locks hold.
TEST(GradientFormats, LossesFollowFloat32) {
  struct Formats {
    DType dtype, grad, reduce;
  };
  for (const Formats& formats : {Formats{DType::bfloat16, DType::bfloat16, DType::bfloat16},
                                 {DType::bfloat16, DType::bfloat16, DType::float32},
                                 {DType::bfloat16, DType::float32, DType::bfloat16},
                                 {DType::float32, DType::float32, DType::bfloat16}})
    for (const Layout& layout :
         {Layout{.replicate = 2, .microbatches = 3}, Layout{.shard = 2, .pp = 2, .microbatches = 3, .tied = true},
          Layout{.replicate = 2, .shard = 2, .microbatches = 3, .zero = 2},
          Layout{.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .zero = 3}}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", name_of(layout), name_of(formats.dtype), name_of(formats.grad),
                               name_of(formats.reduce)));
      RunConfig config = config_of(layout);
      config.training.dtype = DType::float32;
      const auto expected = run_training(one_rank(config));
      config.training.dtype = formats.dtype;
      config.training.grad_dtype = formats.grad;
      config.training.reduce_dtype = formats.reduce;
      const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                         expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                       }});
      for (std::size_t step = 0; step < expected->losses.size(); ++step)
        EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.02 * expected->losses[step]) << step;
    }
}

double root_mean_square_difference(const TensorCollection& a, const TensorCollection& b) {
  double squares = 0, count = 0;
  for (const auto& [name, expected] : b.tensors())
    for (std::size_t i = 0; i < expected.size(); ++i, ++count)
      squares += std::pow(a.tensors().at(name).at(i) - expected[i], 2);
  return std::sqrt(squares / count);
}

// Moments in bfloat16 are rounded by bits that are a function of the global element and the step: layouts differ by the
// order of their sums alone, and two runs by nothing. Weights that were rounded by other bits are ten times as far from
// one rank's.
TEST(CoarseMoments, EveryLayoutFollowsOneRankAndRepeatsItsBits) {
  for (const Layout& layout : {Layout{.replicate = 2, .shard = 2, .zero = 2},
                               Layout{.tp = 2, .pp = 2, .sequence_parallel = true, .tied = true},
                               Layout{.shard = 2, .tp = 2, .family = Family::gpt2, .zero = 3}}) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = config_of(layout);
    config.training.dtype = DType::float32;
    config.optimizer.moments_dtype = DType::bfloat16;
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    const auto again = run_training(config), alone = run_training(one_rank(config));
    EXPECT_EQ(actual->losses, again->losses);
    EXPECT_EQ(worst_difference(actual->values, again->values, 1).error, 0);
    // What rounding does to the weights; other bits for each layout would differ by as much. The last bit of a gradient
    // turns few of them.
    RunConfig exact = one_rank(config);
    exact.optimizer.moments_dtype = DType::float32;
    const double of_rounding = root_mean_square_difference(run_training(exact)->values, alone->values);
    EXPECT_GT(of_rounding, 1e-5);
    EXPECT_LT(root_mean_square_difference(actual->values, alone->values), of_rounding / 5);
  }
}

/// The master weights of a rank and the parameters that were rounded from them, element by element, as they are after a
/// step.
struct RoundedWeights {
  std::vector<float> masters, params;
};

RoundedWeights rounded_weights(const RankView& rank) {
  RoundedWeights all;
  for (const ShardedUnit* unit : rank.run.model().part().units())
    for (std::size_t b = 0; b < unit->buckets().size(); ++b) {
      const Tensor param = unit->param_part(b), master = unit->memory(b).master;
      for (std::int64_t i = 0; i < param.num_elements(); ++i) {
        const bfloat16 rounded = param.as<bfloat16>()[i];
        all.params.push_back(to<float>(rounded));
        all.masters.push_back(unit->options().stores_remainders ? joined({rounded.bits, master.as<std::int16_t>()[i]})
                                                                : master.as<float>()[i]);
      }
    }
  return all;
}

/// By step and rank.
using WeightHistory = std::vector<std::vector<RoundedWeights>>;

std::unique_ptr<Trajectory> run_recording(const RunConfig& config, WeightHistory& history) {
  const auto num_ranks = static_cast<std::size_t>(config.mesh_shape().num_ranks());
  history.assign(static_cast<std::size_t>(config.training.steps), std::vector<RoundedWeights>(num_ranks));
  RunOptions options;
  options.after_step = [&](const RankView& rank, std::int64_t step) {
    history[static_cast<std::size_t>(step) - 1][static_cast<std::size_t>(rank.mesh.rank())] = rounded_weights(rank);
  };
  options.at_end = [&](const RankView& rank) {
    expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
  };
  return run_training(config, options);
}

bool is_halfway(float master) { return (std::bit_cast<std::uint32_t>(master) & 0xffffU) == 0x8000U; }

/// The masters are equal to the bit, and the parameters wherever their master is not halfway between two bfloat16
/// values. Returns how many parameters were rounded apart.
int compare_weights(const RoundedWeights& actual, const RoundedWeights& expected) {
  EXPECT_EQ(actual.masters, expected.masters);
  int num_apart = 0;
  for (std::size_t i = 0; i < expected.params.size(); ++i) {
    if (actual.params[i] == expected.params[i]) continue;
    ++num_apart;
    EXPECT_TRUE(is_halfway(expected.masters[i])) << "element " << i << ": " << expected.masters[i];
  }
  return num_apart;
}

// The optimizer takes the same steps with float32 masters and with the two bytes that their bfloat16 parameters lack.
// Of two bfloat16 values that are equally near, the one kind takes the even one and the other the larger one. One
// element in 65,536 is such a tie. From the first tie on, the two runs differ as two roundings in bfloat16 do.
TEST(Remainders, StepsAreThoseOfMastersUpToTies) {
  for (const Layout& layout : {Layout{.replicate = 2, .shard = 2, .zero = 1},
                               Layout{.tp = 2, .pp = 2, .sequence_parallel = true, .tied = true},
                               Layout{.shard = 2, .tp = 2, .family = Family::gpt2, .zero = 3}}) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = config_of(layout);
    config.training.dtype = DType::bfloat16;
    WeightHistory of_masters, of_remainders;
    const auto expected = run_recording(config, of_masters);
    config.optimizer.store_param_remainders = true;
    const auto actual = run_recording(config, of_remainders);
    int num_apart = 0;
    for (std::size_t step = 0; step < of_masters.size() && num_apart == 0; ++step) {
      EXPECT_EQ(actual->losses[step], expected->losses[step]) << step;
      for (std::size_t rank = 0; rank < of_masters[step].size(); ++rank)
        num_apart += compare_weights(of_remainders[step][rank], of_masters[step][rank]);
    }
    for (std::size_t step = 0; step < expected->losses.size(); ++step)
      EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.02 * expected->losses[step]) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Bfloat16,
    ::testing::Values(Layout{.replicate = 2}, Layout{.shard = 4}, Layout{.tp = 4},
                      Layout{.tp = 2, .sequence_parallel = true, .family = Family::gpt2, .tied = true},
                      Layout{.pp = 4, .microbatches = 3},
                      Layout{.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 4},
                      Layout{.shard = 2, .tp = 2, .sequence_parallel = true, .microbatches = 3, .experts = 6}),
    test_name);

}  // namespace
}  // namespace echelon::testing
