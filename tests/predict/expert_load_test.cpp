// Predictions where experts are loaded unevenly: what the most loaded rank computes, and what does not depend on loads.
#include "predict/experts/read_expert_load.h"

#include "base/error.h"
#include "predict/simulation/simulate.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace echelon {
namespace {

constexpr double peak_flops = 1e12;

/// Matmuls alone take time.
MachineSpec matmul_machine() {
  NodeSpec node;
  node.num_devices = 8;
  node.device = {.name = "pure",
                 .memory_bytes = 1 << 30,
                 .memory_bandwidth = 1e30,
                 .formats = {{"float32", {.peak_flops = peak_flops}}}};
  node.device.vector_flops = 1e30;
  node.link = {.bandwidth = 1e30};
  node.num_nics = 8;
  node.nic_bandwidth = 1e30;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

RunConfig config_of_experts(double dispatch_bound = 1e6) {
  RunConfig config;
  config.model = preset("mixtral-30m");
  config.training.seq_len = 64;
  config.training.global_batch_size = 8;
  config.parallelism.data_parallel_shard_degree = config.parallelism.expert_parallel_degree = 4;
  config.moe.dispatch_bound = dispatch_bound;
  return config;
}

RunConfig loaded(RunConfig config, const std::string& load) {
  config.expert_load = read_expert_load(load, config);
  return config;
}

Simulation step_of(const RunConfig& config) { return simulate(Blueprint(config), matmul_machine()); }

std::string file_with(const std::string& text) {
  std::string path = scratch_folder() + "/loads.json";
  std::ofstream(path) << text;
  return path;
}

/// Of all layers and microbatches, three matmuls in each of three passes.
double expert_flops_of_a_rank(const RunConfig& config) {
  const ModelSpec& model = config.model;
  const std::int64_t rows = config.training.global_batch_size / 4 * config.training.seq_len *
                            model.mixture.num_experts_per_tok * model.num_hidden_layers;
  return static_cast<double>(3 * 3 * 2 * rows * model.hidden_size * model.mixture.moe_intermediate_size);
}

/// Of the most loaded of four ranks, each of which sends it a whole number of the 128 rows of its microbatch.
double most_over_mean(const RunConfig& config) {
  constexpr double num_rows = 64 * 2;
  return 4 * std::round(shares_of_ranks(config.expert_load, config.model.mixture, 4).front() * num_rows) / num_rows;
}

TEST(PredictedExpertLoad, AStepTakesWhatTheMostLoadedRankComputes) {
  const RunConfig even = config_of_experts();
  const double even_seconds = step_of(even).step_seconds;
  for (const char* load : {"zipf:0.5", "zipf:1.2", "zipf:3"}) {
    SCOPED_TRACE(load);
    const RunConfig uneven = loaded(even, load);
    const double over_mean = most_over_mean(uneven);
    ASSERT_GT(over_mean, 1.1);
    const double more = (over_mean - 1) * expert_flops_of_a_rank(even) / peak_flops;
    EXPECT_NEAR(step_of(uneven).step_seconds, even_seconds + more, 1e-6 * more);
  }
}

TEST(PredictedExpertLoad, FurtherRoundsAreComputedAgain) {
  const RunConfig one_round = loaded(config_of_experts(), "zipf:1.2"),
                  rounds = loaded(config_of_experts(1), "zipf:1.2");
  const double again = step_of(rounds).step_seconds - step_of(one_round).step_seconds;
  const double over_mean = most_over_mean(rounds);
  // Rows beyond the first round go through gate and up in backward once more: 2 of 9 matmuls.
  EXPECT_NEAR(again, (over_mean - 1) * 2 / 9 * expert_flops_of_a_rank(rounds) / peak_flops, 1e-6 * again);
}

/// Each expert takes three quarters of its share of even loads.
RunConfig dropping(RunConfig config) {
  config.moe.dispatch_bound = MoeConfig().dispatch_bound;
  config.moe.capacity_factor = 0.75;
  return config;
}

TEST(PredictedExpertLoad, RowsBeyondTheCapacityAreNotComputed) {
  RunConfig even = config_of_experts();
  for (const int ep : {1, 2, 4}) {
    SCOPED_TRACE(ep);
    even.parallelism.expert_parallel_degree = ep;
    const double less = 0.25 * expert_flops_of_a_rank(even) / peak_flops;
    EXPECT_NEAR(step_of(dropping(even)).step_seconds, step_of(even).step_seconds - less, 1e-6 * less);
  }
  // Each of eight experts takes 12 of the 128 rows of a sequence. Those of one rank are full with these loads, too.
  RunConfig uneven = dropping(even);
  uneven.expert_load.rows_of_layers = {{60, 60, 1, 1, 1, 1, 2, 2}};
  uneven.expert_load.name = "measured";
  EXPECT_NEAR(step_of(uneven).step_seconds, step_of(dropping(even)).step_seconds, 1e-9);
  const std::vector<double> kept = kept_shares_of_ranks(uneven),
                            expected = {24.0 / 128, 4.0 / 128, 2.0 / 128, 2.0 / 128};
  ASSERT_EQ(kept.size(), expected.size());
  for (std::size_t rank = 0; rank < kept.size(); ++rank) EXPECT_NEAR(kept[rank], expected[rank], 1e-12);
  EXPECT_TRUE(kept_shares_of_ranks(even).empty());
  uneven.parallelism.expert_parallel_degree = 1;
  const double fewer = 0.75 * expert_flops_of_a_rank(even) / peak_flops;
  EXPECT_NEAR(step_of(uneven).step_seconds, step_of(even).step_seconds - fewer, 1e-6 * fewer);
  uneven.parallelism.expert_parallel_degree = 4;
  EXPECT_EQ(expert_load_text(uneven),
            "experts measured: the most loaded of 4 ranks computes 3.00 times the mean, in 1 round; 75.0 % of rows are "
            "dropped\n");
  EXPECT_EQ(expert_load_text(dropping(even)).substr(0, 17), "experts balanced:");
  EXPECT_NE(expert_load_text(dropping(even)).find("; 25.0 % of rows are dropped"), std::string::npos);
}

TEST(PredictedExpertLoad, MemoryDoesNotDependOnIt) {
  for (const double bound : {0.5, 1.0, 1.2, 4.0}) {
    const RunConfig even = config_of_experts(bound);
    for (const char* load : {"zipf:0.5", "zipf:3"})
      EXPECT_EQ(step_of(loaded(even, load)).peak_memory_bytes(), step_of(even).peak_memory_bytes()) << bound << load;
  }
}

TEST(PredictedExpertLoad, ComesFromAFile) {
  RunConfig config = config_of_experts();
  config.model.num_hidden_layers = 2;
  const std::string rows = "[[1,1,1,1,1,1,1,1],[9,1,1,1,1,1,1,1]]";
  const ExpertLoad listed = read_expert_load(file_with(rows), config);
  EXPECT_EQ(listed.rows_of_layers[1][0], 9);
  const ExpertLoad logged =
      read_expert_load(file_with(R"({"step":1,"moe":{"loads":[[2,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,1]]}})"
                                 "\n"
                                 R"({"step":2,"moe":{"loads":)" +
                                 rows +
                                 "}}\n"
                                 R"({"step":3,"loss":1})"
                                 "\n"),
                       config);
  EXPECT_EQ(logged.rows_of_layers, listed.rows_of_layers);
  config.expert_load = read_expert_load(file_with("[[3,3,3,3,3,3,3,3],[1,1,1,1,1,1,1,1]]"), config);
  RunConfig even = config;
  even.expert_load = {};
  EXPECT_EQ(step_of(config).step_seconds, step_of(even).step_seconds);
}

TEST(PredictedExpertLoad, RefusesWhatIsNone) {
  RunConfig config = config_of_experts();
  config.model.num_hidden_layers = 1;
  const std::string of_this_model = "(use the file of a run of this model)", no_file = "(use balanced)",
                    no_loads = "(train with --metrics.expert_loads=true)", no_exponent = "(use --expert-load=zipf:1.2)";
  const std::pair<std::string, std::string> refused[] = {
      {"zipf", no_file},
      {"zipf:", no_exponent},
      {"zipf:-1", no_exponent},
      {"zipf:1e3", no_exponent},
      {"zipf:nan", no_exponent},
      {"even", no_file},
      {scratch_folder(), no_file},
      {"[]", "has 0 layers with experts, but the model has 1 " + of_this_model},
      {"{}", no_loads},
      {"[[1,2]]", "has no loads of 8 experts in its layer 0 with experts " + of_this_model},
      {"[[1,1,1,1,1,1,1,-1]]", of_this_model},
      {"[[0,0,0,0,0,0,0,0]]", no_file},
      {"[1", no_loads},
      {R"({"moe":{"loads":7}})", of_this_model}};
  for (const auto& [given, remedy] : refused) {
    SCOPED_TRACE(given);
    const std::string text = given.starts_with('[') || given.starts_with('{') ? file_with(given) : given;
    EXPECT_THAT([&] { (void)read_expert_load(text, config); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr(remedy)));
  }
  RunConfig dense = config;
  dense.model = preset("llama-10m");
  EXPECT_THROW((void)read_expert_load("balanced", dense), Error);
  EXPECT_TRUE(read_expert_load("", dense).is_balanced());
  dense.parallelism = {};
  dense.moe = {};
  EXPECT_NO_THROW(validate(dense));
  dense.metrics.expert_loads = true;
  EXPECT_THROW(validate(dense), Error);
}

}  // namespace
}  // namespace echelon
