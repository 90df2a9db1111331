// Documents of a stream: against sums over every query.
#include "predict/documents/document_load.h"

#include "base/error.h"
#include "predict/attention_machine.h"
#include "predict/documents/drawn_lengths.h"
#include "predict/simulation/simulate.h"
#include "spec/groups.h"
#include "train/data/described_documents.h"

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

DocumentLoad load_of(const RunConfig& config, const std::vector<std::int64_t>& lengths, std::int64_t num_batches = 1) {
  return document_load(config, described_documents(config, lengths), num_batches);
}

// Two sequences of 12: documents of 5 and 7, then 12 tokens of the one of 20.
TEST(DocumentLoad, CountsThePairsOfPiecesOfAStream) {
  const DocumentLoad load = load_of(masked_config(1, LoadBalancer::headtail, 12), {5, 7, 0, 20}, 2);
  EXPECT_EQ(load.num_sequences, 2);
  EXPECT_DOUBLE_EQ(load.mean_length, 24.0 / 3);
  EXPECT_DOUBLE_EQ(load.pairs_share, (15.0 + 28 + 78) / (2 * 78));
  EXPECT_DOUBLE_EQ(load.slowest_share, load.pairs_share);
  EXPECT_DOUBLE_EQ(load.largest_over_mean, 1);
  EXPECT_FALSE(load.keys.skip_rows());
}

// As a stream 8, 4 and 4, 4, 4: 36 + 10 and 3 times 10 pairs. Packed, 8 and 4 each.
TEST(DocumentLoad, PacksAsTheRunDoes) {
  RunConfig config = masked_config(1, LoadBalancer::headtail, 12);
  const std::vector<std::int64_t> lengths = {8, 8, 4, 4};
  EXPECT_DOUBLE_EQ(load_of(config, lengths, 2).pairs_share, (46.0 + 30) / (2 * 78));
  config.data.packing = Packing::best_fit;
  EXPECT_DOUBLE_EQ(load_of(config, lengths, 2).pairs_share, (46.0 + 46) / (2 * 78));
  EXPECT_DOUBLE_EQ(load_of(config, {8, 8}, 2).pairs_share, (46.0 + 46) / (2 * 78)) << "padding is a document";
}

// Two replicas get whole sequences, and two of halves: 78 pairs, 2 * 21.
TEST(DocumentLoad, BalancesAsTheRunDoes) {
  RunConfig config = masked_config(1, LoadBalancer::headtail, 12);
  config.training.global_batch_size = 4;
  config.parallelism.data_parallel_shard_degree = 2;
  const std::vector<std::int64_t> lengths = {12, 6, 6, 12, 6, 6};
  const DocumentLoad drawn = load_of(config, lengths);
  EXPECT_DOUBLE_EQ(drawn.replicas_over_mean, 156.0 / 120);
  EXPECT_DOUBLE_EQ(drawn.slowest_share, 1);
  config.data.balance_batch = true;
  const DocumentLoad balanced = load_of(config, lengths);
  EXPECT_DOUBLE_EQ(balanced.replicas_over_mean, 1);
  EXPECT_DOUBLE_EQ(balanced.slowest_share, 120.0 / 156);
  EXPECT_DOUBLE_EQ(balanced.pairs_share, drawn.pairs_share);
}

// One layer of two sees the last four tokens: of documents of 5 and 7 it has 14 and 22 pairs of 42.
TEST(DocumentLoad, CountsTheWindowOfEachLayer) {
  RunConfig config = masked_config(1, LoadBalancer::headtail, 12);
  config.model.num_hidden_layers = 2;
  config.model.sliding_window = 4;
  config.model.max_window_layers = 1;
  EXPECT_DOUBLE_EQ(load_of(config, {5, 7}).slowest_share, (15.0 + 28 + 14 + 22) / (78 + 42));
}

// Rank 0 holds 0-3, rank 1 4-7. Documents of 6 and 2: 1 + 2 + 3 + 4 pairs, and 5 + 6 + 1 + 2. Rank 1 sees all rows of
// rank 0, which sees none of its.
TEST(DocumentLoad, SaysHowUnevenRanksAre) {
  RunConfig config = masked_config(2, LoadBalancer::none, 8);
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather}) {
    config.parallelism.context_parallel_method = method;
    const DocumentLoad load = load_of(config, {6, 2});
    EXPECT_DOUBLE_EQ(load.largest_over_mean, 14.0 / 12);
    EXPECT_DOUBLE_EQ(load.slowest_share, 14.0 / 26);
    EXPECT_EQ(load.rank_shares, (std::vector{1.0, 14.0 / 26}));
    ASSERT_EQ(load.keys.of_windows.size(), 1U);
    const auto& [keys, gradients] = load.keys.of_windows.front();
    for (const RowShares& shares : {keys, gradients}) {
      EXPECT_EQ(shares.slowest, std::vector{1.0});
      EXPECT_EQ(shares.mean, std::vector{0.5});
    }
    EXPECT_EQ(load.rows.front().keys, 4);
    EXPECT_EQ(load.rows.front().gradients, 4);
  }
}

// A step as a CUDA graph sends all rows.
TEST(DocumentLoad, SendsAllRowsInAGraph) {
  RunConfig config = masked_config(2, LoadBalancer::none, 8);
  config.training.device = DeviceChoice::cuda;
  config.training.cuda_graphs = true;
  const DocumentLoad load = load_of(config, {6, 2});
  EXPECT_FALSE(load.keys.skip_rows());
  const ContextBytes bytes = context_bytes(Blueprint(config), load);
  EXPECT_EQ(bytes.sent, static_cast<double>(bytes.planned));
}

TEST(DocumentLoad, RefusesWhatHasNoDocuments) {
  RunConfig config = masked_config(1, LoadBalancer::headtail, 12);
  EXPECT_THROW((void)load_of(config, {11}), Error);
  config.data.reset_attention_mask = false;
  EXPECT_THROW((void)load_of(config, {12}), Error);
  for (const char* text : {"", "x", "0", "100:", "100:-1", "1e99", "nan", "10:20:30"})
    EXPECT_THROW((void)parse_length_distribution(text), Error) << text;
  EXPECT_EQ(parse_length_distribution("2000:500"), (std::pair{2000.0, 500.0}));
  EXPECT_EQ(parse_length_distribution("2000"), (std::pair{2000.0, 2000.0}));
  EXPECT_EQ(described_lengths("9,7", 20), (std::vector<std::int64_t>{9, 7, 9}));
  for (const char* text : {",", "9,", "9,0", "9,-1", "9,1.5", "9,1e99"})
    EXPECT_THROW((void)described_lengths(text, 20), Error) << text;
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
  const MachineSpec machine = attention_machine();
  const RunConfig config = masked_config(4, LoadBalancer::headtail, 4096);
  const DocumentLoad load = load_of(config, {1000, 2500, 596});
  SoftwareProfile profile;
  const double whole = simulate(Blueprint(config), machine, {.profile = profile}).step_seconds;
  profile.attention_share = load.slowest_share;
  EXPECT_LT(load.slowest_share, 0.9);
  EXPECT_NEAR(simulate(Blueprint(config), machine, {.profile = profile}).step_seconds / whole, load.slowest_share,
              1e-3);
}

// Model flops count two passes of whole squares, computed ones pairs alone: 3.5 times forward's, with those that
// backward forms again.
TEST(DocumentLoad, CountsTheFlopsOfPairsAlone) {
  const RunConfig config = masked_config(4, LoadBalancer::headtail, 4096);
  const DocumentLoad load = load_of(config, {1000, 2500, 596});
  const Blueprint blueprint(config);
  SoftwareProfile profile;
  const Simulation whole = simulate(blueprint, attention_machine(), {.profile = profile});
  profile.pairs_share = load.pairs_share;
  const Simulation of_documents = simulate(blueprint, attention_machine(), {.profile = profile});
  const ModelSpec& model = config.model;
  const double left_out = (1 - load.pairs_share) * 4096, attention = attention_flops_per_token(model, 4096);
  EXPECT_NEAR(whole.model_flops - of_documents.model_flops, left_out * attention, 1e-9 * whole.model_flops);
  const double per_pair =
      14.0 * static_cast<double>(model.num_hidden_layers * model.num_attention_heads * model.head_dim);
  EXPECT_NEAR(whole.hardware_flops - of_documents.hardware_flops, left_out * (4096 + 1) / 2 * per_pair,
              1e-9 * whole.hardware_flops);
}

// Rank 0 holds 0-3, rank 1 4-7, of which 4 sees 3 under a window of 2. So the layer with the window sends a row, and
// the other one all that rank 1 sees.
TEST(DocumentLoad, CountsTheRowsOfEachWindow) {
  RunConfig config = masked_config(2, LoadBalancer::none, 8);
  config.data.reset_attention_mask = false;
  config.model.num_hidden_layers = 2;
  config.model.family = Family::qwen2;
  config.model.sliding_window = 2;
  config.model.max_window_layers = 1;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather}) {
    config.parallelism.context_parallel_method = method;
    const DocumentLoad load = load_of_whole_sequences(config);
    ASSERT_EQ(load.rows.size(), 2U);
    EXPECT_EQ(load.rows[0].keys, 4);
    EXPECT_EQ(load.rows[1].keys, 1);
    ASSERT_EQ(load.keys.of_windows.size(), 2U);
    for (const auto& [shares, rows] : {std::pair(load.keys.of_windows[0], 4.0), {load.keys.of_windows[1], 1.0}})
      for (const RowShares& each : {shares.keys, shares.gradients}) {
        EXPECT_EQ(each.slowest, std::vector{rows / 4});
        EXPECT_EQ(each.mean, std::vector{rows / 8});
      }
    // Of each layer: keys forward and backward, and gradients once, by both ranks.
    const Blueprint blueprint(config);
    const ContextBytes bytes = context_bytes(blueprint, load);
    EXPECT_EQ(bytes.sent, static_cast<double>(bytes.planned) * (4 + 1) / (2 * 2 * 4));
    SoftwareProfile profile;
    profile.key_shares = load.keys;
    const Simulation step = simulate(blueprint, attention_machine(), {.profile = profile});
    EXPECT_EQ(static_cast<double>(step.sent_bytes.at(name_of(cp_group))), bytes.sent);
  }
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Where sending keys alone takes time, a step takes the share of every hop: twice of keys, which are sent again in
// backward, and once of their gradients.
TEST(DocumentLoad, ShortensTheTransfersOfAStep) {
  MachineSpec machine = attention_machine();
  machine.nodes.front().device.formats.at("float32").attention_efficiency = 1;
  machine.nodes.front().link.bandwidth = 1e3;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather})
    for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::packed}) {
      RunConfig config = masked_config(4, balancer, 4096);
      config.model.num_hidden_layers = 3;
      config.parallelism.context_parallel_method = method;
      const DocumentLoad load = load_of(config, {700, 900, 50, 846, 400, 300, 900});
      const auto& [keys, gradients] = load.keys.of_windows.front();
      const Blueprint blueprint(config);
      SoftwareProfile profile;
      const auto sent_for_attention = [&](SoftwareProfile timed) {
        return simulate(blueprint, machine, {.profile = std::move(timed)});
      };
      const Simulation whole = sent_for_attention(profile);
      profile.key_shares = load.keys;
      const Simulation skipped = sent_for_attention(profile);
      const auto seconds = [](const Simulation& step) {
        return step.parts.exposed_communication_seconds.at(name_of(cp_group));
      };
      const double share =
          (2 * sum_of(keys.slowest) + sum_of(gradients.slowest)) / (3 * static_cast<double>(keys.slowest.size()));
      EXPECT_LT(share, 0.9) << name_of(method) << name_of(balancer);
      EXPECT_NEAR(seconds(skipped) / seconds(whole), share, 1e-3) << name_of(method) << name_of(balancer);
      const ContextBytes bytes = context_bytes(blueprint, load);
      EXPECT_EQ(whole.sent_bytes.at(name_of(cp_group)), bytes.planned);
      EXPECT_NEAR(static_cast<double>(skipped.sent_bytes.at(name_of(cp_group))) / bytes.sent, 1, 1e-6);
      // Other software sends all.
      SoftwareProfile other = software_profile("megatron-core");
      const double before = sent_for_attention(other).step_seconds;
      other.key_shares = load.keys;
      EXPECT_EQ(sent_for_attention(other).step_seconds, before);
    }
}

}  // namespace
}  // namespace echelon
