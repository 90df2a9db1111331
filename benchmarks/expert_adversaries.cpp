// What uneven loads of experts cost, on eight thread ranks, compared with the formula of docs/internals/experts.md.
//
//     bench_expert_adversaries [rounds = 3] [--section.key=value ...]
//
// A step with even loads in one round takes T0 + E, of which E are the operations of the experts, 9 matmuls for each of
// R rows. Of the n rows that a rank receives, those after the first Q are sent and computed again, two matmuls each:
//
//     T = T0 + E max over ranks of (9 n + 2 max(n - Q, 0)) / (9 R)
//
// Time is that of a core for each rank (rank_seconds.h). Ranks share one core, so none helps another one. Loads are
// measured in turns.
#include "in_turns.h"
#include "parity/trained_loads.h"
#include "rank_seconds.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using testing::Choice, testing::Targets;

constexpr int num_ranks = 8, num_experts = 16, num_steps = 3;  // after one that does not count
constexpr std::int64_t rows_per_rank = 512;                    // R

std::vector<std::string> default_options() {
  return {
      "--model.model_type=qwen3_moe",          "--model.hidden_size=256",  "--model.num_hidden_layers=2",
      "--model.num_attention_heads=4",         "--model.vocab_size=512",   "--model.max_position_embeddings=512",
      "--model.intermediate_size=512",         "--model.num_experts=16",   "--model.num_experts_per_tok=2",
      "--model.moe_intermediate_size=512",     "--training.seq_len=256",   "--training.micro_batch_size=1",
      "--training.global_batch_size=8",        "--training.num_threads=1", "--parallelism.data_parallel_shard_degree=8",
      "--parallelism.expert_parallel_degree=8"};
}

struct Load {
  const char* name;
  std::int64_t experts_per_token;
  Choice choice;
  Targets targets = Targets::all;
};

std::int32_t in_turn(std::int64_t i, std::int64_t count) { return static_cast<std::int32_t>(i % count); }

Load even_load(std::int64_t k) {
  return {"even", k, [k](std::int64_t n, std::int64_t j) { return in_turn(k * n + j, num_experts); }};
}

std::vector<Load> adversaries() {
  return {
      {"one expert", 1, [](std::int64_t, std::int64_t) { return 5; }},
      {"experts of one rank", 2, [](std::int64_t, std::int64_t j) { return in_turn(6 + j, num_experts); }},
      {"no row for an expert", 2, [](std::int64_t n, std::int64_t j) { return in_turn(2 * n + j, num_experts - 1); }},
      {"no row for a rank", 2, [](std::int64_t n, std::int64_t j) { return in_turn(2 * n + j, num_experts - 2); }},
      {"equal choices", 2, [](std::int64_t, std::int64_t j) { return in_turn(3 + 8 * j, num_experts); }},
      {"one token", 2, even_load(2).choice, Targets::one_token},
      {"trained router", 2, testing::choice_with(testing::trained_loads().at(0), rows_per_rank / 2)},
  };
}

struct Case {
  Load load;
  double bound = 1;
  RunConfig config = {};
  std::vector<std::vector<RankStep>> steps = std::vector<std::vector<RankStep>>(num_ranks);
};

Case case_of(const Load& load, double bound, RunConfig config) {
  config.model.mixture.num_experts_per_tok = load.experts_per_token;
  config.training.seq_len = rows_per_rank / load.experts_per_token;
  config.moe.dispatch_bound = bound;
  if (load.targets == Targets::one_token) config.data.packing = Packing::best_fit;
  return {load, bound, config};
}

void measure(Case& of) {
  const Blueprint blueprint(of.config);
  const testing::FormulaBatches batches(of.config, of.load.targets);
  const Interpose force = testing::forced(of.load.choice, of.config.training.seq_len);
  StepsOfRanks observer(num_ranks);
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = num_steps + 1,
              .interpose = [&](Ops& ops, Mesh& mesh) { return std::make_unique<TimedRank>(force(ops, mesh), mesh); }},
             observer);
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    of.steps[rank].insert(of.steps[rank].end(), observer.steps[rank].begin(), observer.steps[rank].end());
}

/// Matmuls of the most loaded rank, over those of even loads in one round.
double formula_load(const Case& of) {
  const std::int64_t N = of.config.training.seq_len, k = of.load.experts_per_token;
  const bool is_one = of.load.targets == Targets::one_token;
  const double R = rows_per_rank, Q = std::min(std::ceil(of.bound * R), num_ranks * R);
  std::vector<double> rows(num_ranks);
  for (std::int64_t n = 0; n < (is_one ? 1 : N); ++n)
    for (std::int64_t j = 0; j < k; ++j)
      rows.at(static_cast<std::size_t>(of.load.choice(n, j) / (num_experts / num_ranks))) += is_one ? 1 : num_ranks;
  const double most = *std::max_element(rows.begin(), rows.end());
  return (9 * most + 2 * std::max(most - Q, 0.0)) / (9 * R);
}

void compare(const RunConfig& config, int num_rounds) {
  std::vector<Case> even, cases;
  for (const std::int64_t k : {1, 2}) even.push_back(case_of(even_load(k), 1, config));
  for (const Load& load : adversaries())
    for (const double bound : {0.3, 1.2, 100.0}) cases.push_back(case_of(load, bound, config));
  for (int round = 0; round < num_rounds; ++round) {
    for (Case& each : even) measure(each);
    for (Case& each : cases) measure(each);
  }
  fmt::print("{:<22} {:>6} {:>9} {:>9} {:>12} {:>10}\n", "loads", "bound", "load", "step ms", "formula ms",
             "measured /");
  for (const Case& each : even)
    fmt::print("{:<22} {:>6} {:>9.2f} {:>9.2f} {:>12} {:>10}\n",
               fmt::format("even, k = {}", each.load.experts_per_token), each.bound, formula_load(each),
               1e3 * seconds_of(each.steps), "", fmt::format("E {:.2f}", 1e3 * expert_seconds_of(each.steps)));
  for (const Case& each : cases) {
    const Case& base = even.at(static_cast<std::size_t>(each.load.experts_per_token - 1));
    const double E = expert_seconds_of(base.steps), T0 = seconds_of(base.steps) - E,
                 formula = T0 + E * formula_load(each), measured = seconds_of(each.steps);
    fmt::print("{:<22} {:>6} {:>9.2f} {:>9.2f} {:>12.2f} {:>10.3f}\n", each.load.name, each.bound, formula_load(each),
               1e3 * measured, 1e3 * formula, measured / formula);
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  return run_in_turns(argc, argv, 3, default_options(), compare);
}
