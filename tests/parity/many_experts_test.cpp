// A mixture of experts on 1,024 ranks: examples/many_ranks_of_experts.toml in float64.
#include "ops/forwarding_ops.h"
#include "parity/choice_gaps.h"
#include "parity/router_choices.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_watched_steps = 3;

/// Rows that each rank of an expert group is sent, by group, pipeline stage, and pass of the stage.
class RankLoads {
 public:
  void add(const Mesh& mesh, std::int64_t pass, const std::vector<std::int64_t>& rows) {
    const std::lock_guard lock(mutex_);
    const auto place_in_stage =
        mesh.coordinate(Axis::dp_shard) * mesh.shape().degree(Axis::tp) + mesh.coordinate(Axis::tp);
    auto& sum = loads_[{place_in_stage / static_cast<int>(rows.size()), mesh.coordinate(Axis::pp), pass}];
    sum.resize(rows.size());
    for (std::size_t rank = 0; rank < rows.size(); ++rank) sum[rank] += rows[rank];
  }
  [[nodiscard]] std::size_t num_passes() const { return loads_.size(); }
  /// The largest load of a rank over the mean of its group, in any pass.
  [[nodiscard]] double worst() const {
    double worst = 0;
    for (const auto& [place, rows] : loads_) {
      const double mean = static_cast<double>(std::reduce(rows.begin(), rows.end())) / static_cast<double>(rows.size());
      worst = std::max(worst, static_cast<double>(std::ranges::max(rows)) / mean);
    }
    return worst;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::int64_t>, std::vector<std::int64_t>> loads_;
};

/// Counts where the rows of a rank go in the forward passes of training, the first ones that it makes.
class LoadWatch final : public RankInterposer, public ForwardingOps {
 public:
  LoadWatch(Ops& inner, Mesh& mesh, RankLoads& loads, const RunConfig& config)
      : ForwardingOps(inner), mesh_(mesh), loads_(loads), config_(config) {}
  [[nodiscard]] Ops& ops() override { return *this; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

  void perform(const Operation& operation) override {
    inner().perform(operation);
    const auto* const args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || num_passes_ == num_watched_steps * config_.num_microbatches()) return;
    inner().publish();
    const std::int64_t num_ranks = config_.parallelism.expert_parallel_degree,
                       experts_per_rank = config_.model.mixture.num_experts / num_ranks;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(num_ranks));
    const std::int32_t* const experts = args->experts.as<std::int32_t>();
    for (std::int64_t i = 0; i < args->experts.num_elements(); ++i)
      ++rows[static_cast<std::size_t>(experts[i] / experts_per_rank)];
    loads_.add(mesh_, num_passes_++, rows);
  }

 private:
  Mesh& mesh_;
  RankLoads& loads_;
  const RunConfig& config_;
  std::int64_t num_passes_ = 0;  // each stage has one layer, whose forward pass routes once
};

struct ExpertRun {
  std::unique_ptr<Trajectory> trajectory;
  echelon::Choices choices;
  std::vector<std::vector<float>> bias;  // after each step
  std::int64_t most_bytes = 0;           // of a rank
};

void run_experts(const RunConfig& config, const Interpose& inner, ExpertRun& run) {
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, Targets::unequal);
  std::mutex mutex;
  const auto after_step = [&](const RankView& rank, std::int64_t /*step*/) {
    if (rank.mesh.rank() == 0) run.bias.push_back(rank.run.step().router_bias());
  };
  const auto at_end = [&](const RankView& rank) {
    const std::lock_guard lock(mutex);
    run.most_bytes = std::max(run.most_bytes, rank.run.memory().arena().num_bytes());
  };
  run.trajectory = run_training(
      config,
      {.interpose = recorded(blueprint, batches, run.choices, inner), .after_step = after_step, .at_end = at_end});
}

RunConfig example_of_experts() {
  RunConfig config = read_run_config(
      {.path = ECHELON_SOURCE_DIR "/examples/many_ranks_of_experts.toml", .arguments = {}, .read_model = {}});
  config.training.dtype = DType::float64;
  config.training.steps = num_watched_steps;
  return config;
}

// Pipeline 8 x data 32 x tensor 4, and each rank of 64 neighbours has two of 128 experts, of which a token has eight.
// Half a minute on two busy cores.
TEST(ManyRanks, AThousandAndTwentyFourWithExpertsEqualOne) {
  const RunConfig config = example_of_experts();
  ASSERT_EQ(config.mesh_shape().num_ranks(), 1024);
  RankLoads loads;
  const Interpose watch = [&](Ops& ops, Mesh& mesh) { return std::make_unique<LoadWatch>(ops, mesh, loads, config); };
  ExpertRun actual, expected;
  run_experts(config, watch, actual);
  RunConfig alone = one_rank(config);
  alone.training.micro_batch_size = 32;
  run_experts(alone, {}, expected);

  EXPECT_EQ(expect_equal_choices(actual.choices, expected.choices, config), num_watched_steps * 8 * 256 * 16);
  const ChoiceGaps gaps = gaps_of(actual.choices, expected.choices, config);
  expect_clear(gaps);
  expect_equal(*actual.trajectory, *expected.trajectory, 1e-11, 1e-9, config.optimizer.lr);

  EXPECT_EQ(actual.bias, expected.bias);
  ASSERT_EQ(actual.bias.size(), 3U);
  for (std::size_t expert = 0; expert < 8 * 128; ++expert)  // a bias may come back to 0
    EXPECT_TRUE(std::ranges::any_of(actual.bias, [&](const auto& bias) { return bias.at(expert) != 0; })) << expert;
  EXPECT_EQ(loads.num_passes(), 2U * 8U * 8U * num_watched_steps) << "groups, stages, microbatches and steps";
  EXPECT_GE(loads.worst(), 2) << "loads are even";
  EXPECT_LE(actual.most_bytes, 2 << 20);
  fmt::print("largest load of a rank {:.2f} times the mean, largest arena {:.2f} MiB, smallest gaps of choices: {}\n",
             loads.worst(), static_cast<double>(actual.most_bytes) / (1 << 20), text_of(gaps));
}

}  // namespace
}  // namespace echelon::testing
