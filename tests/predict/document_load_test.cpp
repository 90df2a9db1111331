// Documents of a stream: against sums over every query.
#include "predict/documents/document_load.h"

#include "base/error.h"
#include "predict/simulation/simulate.h"

#include <gtest/gtest.h>

#include <numeric>

namespace echelon {
namespace {

RunConfig masked_config(std::int64_t cp, LoadBalancer balancer, std::int64_t seq_len) {
  RunConfig config;
  config.model = preset("llama-10m");
  config.model.max_position_embeddings = config.training.seq_len = seq_len;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.data.reset_attention_mask = true;
  config.parallelism.context_parallel_degree = cp;
  config.parallelism.context_parallel_load_balancer = balancer;
  return config;
}

// Two sequences of 12: documents of 5 and 7, then 12 tokens of the one of 20.
TEST(DocumentLoad, CountsThePairsOfPiecesOfAStream) {
  const std::vector<std::int64_t> lengths = {5, 7, 0, 20};
  const DocumentLoad load = document_load(masked_config(1, LoadBalancer::headtail, 12), lengths);
  EXPECT_EQ(load.num_sequences, 2);
  EXPECT_DOUBLE_EQ(load.mean_length, 24.0 / 3);
  EXPECT_DOUBLE_EQ(load.pairs_share, (15.0 + 28 + 78) / (2 * 78));
  EXPECT_DOUBLE_EQ(load.slowest_share, load.pairs_share);
  EXPECT_DOUBLE_EQ(load.largest_over_mean, 1);
}

// Rank 0 holds 0-3, rank 1 4-7. Documents of 6 and 2: 1 + 2 + 3 + 4 pairs, and 5 + 6 + 1 + 2. Rank 1 sees all rows of
// rank 0, which sees none of its; a ring sends 4 each way.
TEST(DocumentLoad, SaysHowUnevenRanksAre) {
  const std::vector<std::int64_t> lengths = {6, 2};
  const DocumentLoad load = document_load(masked_config(2, LoadBalancer::none, 8), lengths);
  EXPECT_DOUBLE_EQ(load.largest_over_mean, 14.0 / 12);
  EXPECT_DOUBLE_EQ(load.slowest_share, 14.0 / 26);
  EXPECT_DOUBLE_EQ(load.rows_share, 0.5);
}

TEST(DocumentLoad, RefusesWhatHasNoDocuments) {
  RunConfig config = masked_config(1, LoadBalancer::headtail, 12);
  EXPECT_THROW((void)document_load(config, std::vector<std::int64_t>{11}), Error);
  config.data.reset_attention_mask = false;
  EXPECT_THROW((void)document_load(config, std::vector<std::int64_t>{12}), Error);
  for (const char* text : {"", "x", "0", "100:", "100:-1", "1e99", "nan", "10:20:30"})
    EXPECT_THROW((void)parse_length_distribution(text), Error) << text;
  EXPECT_EQ(parse_length_distribution("2000:500"), (std::pair{2000.0, 500.0}));
  EXPECT_EQ(parse_length_distribution("2000"), (std::pair{2000.0, 2000.0}));
}

TEST(DocumentLoad, LengthsHaveTheirMeanAndSpread) {
  const std::vector<std::int64_t> lengths = drawn_lengths(2000, 1000, 40'000'000);
  const auto n = static_cast<double>(lengths.size());
  const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})) / n;
  double squares = 0;
  for (const std::int64_t length : lengths)
    squares += (static_cast<double>(length) - mean) * (static_cast<double>(length) - mean);
  EXPECT_NEAR(mean, 2000, 40);
  EXPECT_NEAR(std::sqrt(squares / n), 1000, 40);
}

// Where attention alone takes time, a step takes the slowest rank's share of it.
TEST(DocumentLoad, ShortensTheAttentionOfAStep) {
  MachineSpec machine;
  machine.nodes.emplace_back();
  NodeSpec& node = machine.nodes.front();
  node.num_devices = 8;
  node.device = {.name = "attention",
                 .memory_bytes = std::int64_t{1} << 40,
                 .memory_bandwidth = 1e21,
                 .formats = {{"float32", {.peak_flops = 1e18, .attention_efficiency = 1e-6}}}};
  node.device.vector_flops = 1e18;
  node.link = {.bandwidth = 1e21};
  const RunConfig config = masked_config(4, LoadBalancer::headtail, 4096);
  const DocumentLoad load = document_load(config, std::vector<std::int64_t>{1000, 2500, 596});
  SoftwareProfile profile;
  const double whole = simulate(Blueprint(config), machine, {.profile = profile}).step_seconds;
  profile.attention_share = load.slowest_share;
  EXPECT_LT(load.slowest_share, 0.9);
  EXPECT_NEAR(simulate(Blueprint(config), machine, {.profile = profile}).step_seconds / whole, load.slowest_share,
              1e-3);
}

}  // namespace
}  // namespace echelon
