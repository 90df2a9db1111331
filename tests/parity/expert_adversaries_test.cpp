// Experts on several ranks when tokens are spread over them as badly as can be: nothing is dropped, loads cost rounds,
// and memory does not know them.
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "report/system_memory.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

namespace echelon::testing {
namespace {

constexpr int forced_ranks = 8;
constexpr double largest_bound = 100, bounds[] = {0.3, 1.0, largest_bound};  // of rows in a round; the last: of any
constexpr std::int64_t forced_experts = 16, forced_tokens = 12;              // two experts on each rank

/// Each rank has whole experts, and all tokens go to all ranks or not; or two ranks have features of the same ones.
enum class Features : std::uint8_t { whole, whole_of_all_tokens, halves };
constexpr int num_places(Features features) { return features == Features::halves ? 2 : 1; }
constexpr int num_parts(Features features) { return forced_ranks / num_places(features); }

/// `most_received`: rows that come to the rank with the most, over all rows that one rank sends.
struct Adversary {
  const char* name;
  std::int64_t experts_per_token;
  Choice choice;
  double most_received, most_received_of_halves;
  std::int64_t tokens_per_rank = 2 * forced_tokens;
  Targets targets = Targets::unequal;
};

std::int32_t even_choice(std::int64_t n, std::int64_t j) {
  return static_cast<std::int32_t>((2 * n + j) % forced_experts);
}

std::vector<Adversary> adversaries() {
  const auto expert = [](std::int64_t index) { return static_cast<std::int32_t>(index); };
  return {
      {"one_expert", 1, [](std::int64_t, std::int64_t) { return 5; }, forced_ranks, forced_ranks / 2.0},
      {"experts_of_one_rank", 2, [=](std::int64_t, std::int64_t j) { return expert(6 + j); }, forced_ranks,
       forced_ranks / 2.0},
      // Experts 0 to 14 in turn, of which 12 tokens choose the first nine twice: four rows for some ranks, of three. Of
      // four parts some have eight, of six.
      {"no_row_for_one_expert", 2, [=](std::int64_t n, std::int64_t j) { return expert((2 * n + j) % 15); }, 4.0 / 3,
       4.0 / 3},
      {"no_row_for_one_rank", 2, [=](std::int64_t n, std::int64_t j) { return expert((2 * n + j) % 14); }, 4.0 / 3,
       4.0 / 3},
      {"equal_choices", 2, [=](std::int64_t, std::int64_t j) { return expert(3 + 8 * j); }, forced_ranks / 2.0,
       forced_ranks / 4.0},
      {"one_token_of_each_rank", 2, [=](std::int64_t, std::int64_t j) { return expert(3 + 8 * j); }, forced_ranks / 2.0,
       forced_ranks / 4.0, 1},
      {"one_token", 2, even_choice, 1.0 / forced_tokens, 1.0 / forced_tokens, forced_tokens, Targets::one_token},
  };
}

RunConfig config_under(const Adversary& adversary, Features features, double bound) {
  RunConfig config = config_of({.shard = forced_ranks,
                                .microbatches = 1,
                                .zero = 2,
                                .experts = forced_experts,
                                .router_losses = true,
                                .ep = num_parts(features),
                                .etp = features == Features::halves ? num_places(features) : 0,
                                .ranks_per_node = features == Features::whole_of_all_tokens ? 1 : 0});
  config.model.mixture.num_experts_per_tok = adversary.experts_per_token;
  config.moe.dispatch_bound = bound;
  config.training.steps = 2;
  config.lr_scheduler.warmup_steps = 1;
  if (adversary.tokens_per_rank <= forced_tokens) {
    config.training.micro_batch_size = 1;
    config.training.global_batch_size = forced_ranks;
    config.training.seq_len = adversary.tokens_per_rank;
  }
  if (adversary.targets == Targets::one_token) config.data.packing = Packing::best_fit;
  return config;
}

/// Of even loads, and of these: max over ranks of ceil(rows / Q), with Q = min(ceil(bound R), all that can come). Of
/// all tokens one of each rank fits.
double forced_rounds(const Adversary& adversary, Features features, double bound) {
  const double R = static_cast<double>(adversary.tokens_per_rank * adversary.experts_per_token),
               of_tokens = static_cast<double>(forced_ranks * adversary.experts_per_token),  // one of each rank
      least = features == Features::whole_of_all_tokens ? of_tokens : 1,
               Q = std::max(least, std::min(std::ceil(bound * R), R * num_parts(features))),
               most = features == Features::halves ? adversary.most_received_of_halves : adversary.most_received;
  return std::max(std::ceil(R / Q), std::ceil(most * R / Q));
}

/// Of all tokens that fit, a round takes every r-th one of each rank: as many rounds as rows need, or more.
void expect_rounds_of_all_tokens(const ExpertTraffic& traffic, const Adversary& adversary, double bound) {
  const auto tokens = static_cast<double>(adversary.tokens_per_rank), rounds = static_cast<double>(traffic.num_rounds),
             exchanges = static_cast<double>(traffic.num_exchanges),
             least = forced_rounds(adversary, Features::whole_of_all_tokens, bound);
  EXPECT_GE(rounds, exchanges * std::min(tokens, std::max(least, std::ceil(tokens / std::ceil(bound * tokens)))));
  EXPECT_LE(rounds, exchanges * (bound == largest_bound ? 1 : tokens));
}

std::int64_t num_tokens_of(const RunConfig& config, const Adversary& adversary) {
  return adversary.targets == Targets::one_token ? 1 : config.training.global_batch_size * config.training.seq_len;
}

/// Of the first layer in the first step.
std::int64_t num_rows_of(const Trajectory& trajectory) {
  const auto first = trajectory.router_sums.at(0).begin();
  return static_cast<std::int64_t>(std::accumulate(first, first + forced_experts, 0.0));
}

void PrintTo(const Adversary& adversary, std::ostream* out) { *out << adversary.name; }

std::string_view name_of(Features features) {
  switch (features) {
    case Features::whole: return "whole";
    case Features::whole_of_all_tokens: return "whole_of_all_tokens";
    case Features::halves: return "halves";
  }
  return "?";
}

class Adversarial : public ::testing::TestWithParam<std::tuple<Adversary, Features>> {};

// Claim (parity): A mixture computes what one rank computes however uneven its loads are: all tokens
//   at one expert, all at one rank's, none at an expert or a rank, one token in all. It then takes
//   more rounds, and no more memory.
// Bound: 8 ranks, three bounds of a round: parity's bounds; equal arenas, resident memory within 16
//   MiB; rounds as many as the rows need.
// Tests: Adversarial
TEST_P(Adversarial, EqualsOneRankInAsManyRoundsAsRowsNeed) {
  const auto& [adversary, features] = GetParam();
  std::unique_ptr<Trajectory> expected;
  for (const double bound : bounds) {
    SCOPED_TRACE(fmt::format("bound {}", bound));
    const RunConfig config = config_under(adversary, features, bound);
    const Interpose interpose = forced(adversary.choice, config.training.seq_len);
    if (!expected) expected = run_training(one_rank(config), {.interpose = interpose, .targets = adversary.targets});
    const double rounds = forced_rounds(adversary, features, bound);
    const auto at_end = [&](const RankView& rank) {
      expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
      const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
      EXPECT_GT(traffic.num_exchanges, 0);
      if (features == Features::whole_of_all_tokens) return expect_rounds_of_all_tokens(traffic, adversary, bound);
      EXPECT_EQ(static_cast<double>(traffic.num_rounds), rounds * static_cast<double>(traffic.num_exchanges));
    };
    const auto actual = run_training(config, {.interpose = interpose, .at_end = at_end, .targets = adversary.targets});
    expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
    EXPECT_EQ(num_rows_of(*actual), config.model.mixture.num_experts_per_tok * num_tokens_of(config, adversary));
  }
}

std::string name_of_adversary(const ::testing::TestParamInfo<std::tuple<Adversary, Features>>& row) {
  const auto& [adversary, features] = row.param;
  return fmt::format("{}_{}", adversary.name, name_of(features));
}

INSTANTIATE_TEST_SUITE_P(Routers, Adversarial,
                         ::testing::Combine(::testing::ValuesIn(adversaries()),
                                            ::testing::Values(Features::whole, Features::whole_of_all_tokens,
                                                              Features::halves)),
                         name_of_adversary);

TEST(AdversarialLayer, HasMoreRoundsThanOthers) {
  const Choice even = [](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>(2 * ((2 * n + j) % 8)); },
               one_rank = [](std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(6 + j); };
  for (const Features features : {Features::whole, Features::halves}) {
    const Adversary adversary = {"", 2, even, forced_ranks, forced_ranks};
    RunConfig config = config_under(adversary, features, 1);
    config.model.num_hidden_layers = 3;
    std::atomic<std::int64_t> num_rounds = 0, rows_again = 0;
    const auto at_end = [&](const RankView& rank) {
      num_rounds += rank.run.step().expert_traffic(ProgramKind::training).num_rounds;
      rows_again += rank.run.step().expert_traffic(ProgramKind::training).rows_again;
    };
    const Interpose interpose = forced_by_layer({even, one_rank, even}, config.training.seq_len);
    const auto actual = run_training(config, {.interpose = interpose, .at_end = at_end});
    // The ranks with these experts take all rows, as many as one rank sends in each round.
    const double ranks = forced_ranks, rounds = num_parts(features),
                 R = static_cast<double>(2 * adversary.tokens_per_rank), again = ranks * R - R * ranks / rounds,
                 copies = ranks / rounds;
    const std::vector<double> counts = {ranks, ranks, 0, ranks, ranks * rounds, again * copies, ranks, ranks, 0};
    EXPECT_EQ(actual->exchange_counts, std::vector(static_cast<std::size_t>(config.training.steps), counts));
    EXPECT_EQ(num_rounds, config.training.steps * static_cast<std::int64_t>(2 * ranks + ranks * rounds));
    EXPECT_EQ(rows_again, config.training.steps * static_cast<std::int64_t>(again * copies));
  }
}

/// What all ranks sent over these groups, as the transport counted it.
struct SentRows {
  std::atomic<std::int64_t> across = 0, inside = 0;
};

// Where L ranks have features of the same experts, every row is given L - 1 times and as many addends come back,
// whatever the loads. As many rows as with even loads go across to other experts.
TEST(AdversarialTraffic, OfFeaturesIsTheClosedForm) {
  constexpr std::int64_t L = num_places(Features::halves), P = num_parts(Features::halves);
  for (const Adversary& adversary : adversaries()) {
    if (adversary.targets == Targets::one_token) continue;
    SCOPED_TRACE(adversary.name);
    const RunConfig config = config_under(adversary, Features::halves, P);  // one round
    const Group across = expert_across_group(static_cast<int>(P * L), static_cast<int>(L)),
                inside = expert_inner_group(static_cast<int>(L));
    SentRows sent;
    const auto at_end = [&](const RankView& rank) {
      sent.across += rank.mesh.sent_bytes().at(across);
      sent.inside += rank.mesh.sent_bytes().at(inside);
    };
    (void)run_training(config, {.interpose = forced(adversary.choice, config.training.seq_len), .at_end = at_end});
    const std::int64_t rows = forced_ranks * adversary.tokens_per_rank * adversary.experts_per_token,
                       backwards = config.training.steps * config.model.num_hidden_layers,
                       forwards = backwards + config.model.num_hidden_layers,
                       of_row = (2 * config.model.hidden_size + 1) * 8,
                       of_offsets = forced_ranks * (forced_experts + 1) * 4;
    EXPECT_EQ(sent.across, forwards * (P - 1) * of_offsets + (forwards + backwards) * (P - 1) * rows / P * of_row);
    EXPECT_EQ(sent.inside, forwards * (L - 1) * P * of_offsets + (forwards + backwards) * (L - 1) * rows * of_row);
  }
}

/// As many rows that a buffer for those that could come would be larger than what is allowed.
RunConfig large_config(std::int64_t experts_per_token, Features features, double bound) {
  RunConfig config = config_under({"", experts_per_token, even_choice, 1, 1}, features, bound);
  config.model.hidden_size = config.model.mixture.moe_intermediate_size = features == Features::halves ? 192 : 128;
  config.model.max_position_embeddings = config.training.seq_len = 512;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = forced_ranks;
  config.training.steps = config.lr_scheduler.warmup_steps = 1;
  return config;
}

/// The largest arena of a rank. All ranks are still there when the process is looked at.
std::int64_t most_arena_bytes(const RunConfig& config, const Choice& choice) {
  std::atomic<std::int64_t> most = 0;
  const auto at_end = [&](const RankView& rank) {
    const std::int64_t bytes = rank.run.memory().arena().num_bytes();
    for (std::int64_t before = most; before < bytes && !most.compare_exchange_weak(before, bytes);) {
    }
  };
  (void)run_training(config, {.interpose = forced(choice, config.training.seq_len), .at_end = at_end});
  return most;
}

class AdversarialMemory : public ::testing::TestWithParam<std::tuple<Features, double>> {};

TEST_P(AdversarialMemory, IsThatOfEvenLoads) {
  const auto& [features, bound] = GetParam();
  for (const std::int64_t experts_per_token : {1, 2}) {
    const RunConfig config = large_config(experts_per_token, features, bound);
    // Repeated, since how much of the memory of earlier threads is used again differs from run to run.
    const std::int64_t arena = most_arena_bytes(config, even_choice);
    for (int again = 0; again < 3; ++again) EXPECT_EQ(most_arena_bytes(config, even_choice), arena);
    const std::int64_t resident = process_memory().peak_bytes,
                       allowed = std::max<std::int64_t>(resident / 50, 16 << 20);
    const Blueprint with_room(large_config(experts_per_token, features, largest_bound));  // for the rows of all ranks
    EXPECT_TRUE(bound == largest_bound || with_room.rank(0).arena_bytes() - arena > allowed) << "that would be allowed";
    for (const Adversary& adversary : adversaries()) {
      if (adversary.experts_per_token != experts_per_token || adversary.tokens_per_rank <= forced_tokens) continue;
      EXPECT_EQ(most_arena_bytes(config, adversary.choice), arena) << adversary.name;
      EXPECT_LE(process_memory().peak_bytes - resident, allowed) << adversary.name;
    }
  }
}

std::string name_of_memory(const ::testing::TestParamInfo<std::tuple<Features, double>>& row) {
  const auto& [features, bound] = row.param;
  return fmt::format("{}_bound{:.0f}", name_of(features), 100 * bound);
}

INSTANTIATE_TEST_SUITE_P(Experts, AdversarialMemory,
                         ::testing::Combine(::testing::Values(Features::whole, Features::whole_of_all_tokens,
                                                              Features::halves),
                                            ::testing::ValuesIn(bounds)),
                         name_of_memory);

}  // namespace
}  // namespace echelon::testing
