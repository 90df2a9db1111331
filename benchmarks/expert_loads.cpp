// What it costs that loads of experts are not known, on thread ranks: a step as it is, compared with one that knows the
// loads and has room for all rows, with even loads and those of a trained router (tests/parity/trained_loads.json).
//
//     bench_expert_loads [turns = 5] [--section.key=value ...]
//
// The one that knows takes Q = the rows of its most loaded rank, so that one round is enough, and finds the counts of
// all ranks where another step exchanges them. Each layer has the loads of a layer of the file.
//
// Time is that of a core for each rank (rank_seconds.h). Ranks share one core, so none helps another one. The ratio is
// the median over turns.
#include "in_turns.h"
#include "known_loads.h"
#include "parity/trained_loads.h"
#include "rank_seconds.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using testing::Choice;

constexpr int num_steps = 3;  // after one that does not count

std::vector<std::string> default_options() {
  return {
      "--model.model_type=qwen3_moe",          "--model.hidden_size=256",  "--model.num_hidden_layers=4",
      "--model.num_attention_heads=4",         "--model.vocab_size=512",   "--model.max_position_embeddings=512",
      "--model.intermediate_size=512",         "--model.num_experts=16",   "--model.num_experts_per_tok=2",
      "--model.moe_intermediate_size=512",     "--training.seq_len=256",   "--training.micro_batch_size=1",
      "--training.global_batch_size=8",        "--training.num_threads=1", "--parallelism.data_parallel_shard_degree=8",
      "--parallelism.expert_parallel_degree=8"};
}

/// Of a layer: the choices of a sequence, and rows of the most loaded rank over the mean.
struct Load {
  Choice choice;
  double uneven = 0;
};

struct Loads {
  const char* name;
  std::vector<Load> layers = {};
  [[nodiscard]] double most_uneven() const { return std::ranges::max(layers, {}, &Load::uneven).uneven; }
};

class StepsWithRounds final : public RunObserver {
 public:
  explicit StepsWithRounds(int num_ranks) : steps(num_ranks) {}
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override {
    steps.ended_step(rank, step, result);
    if (rank.mesh.rank() > 0) return;
    const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
    rounds_per_exchange = static_cast<double>(traffic.num_rounds) / static_cast<double>(traffic.num_exchanges);
  }
  StepsOfRanks steps;
  double rounds_per_exchange = 0;
};

struct Measured {
  double seconds = 0, rounds = 0;  // of a step; of all layers
};

enum class Knows : std::uint8_t { nothing, loads };

Measured measured(RunConfig config, const Loads& loads, Knows knows) {
  if (knows == Knows::loads) config.moe.dispatch_bound = loads.most_uneven();
  const Blueprint blueprint(config);
  const testing::FormulaBatches batches(config, testing::Targets::all);
  std::vector<Choice> choices;
  for (const Load& layer : loads.layers) choices.push_back(layer.choice);
  const Interpose force = testing::forced_by_layer(choices, config.training.seq_len);
  const Interpose timed = [&](Ops& ops, Mesh& mesh) { return std::make_unique<TimedRank>(force(ops, mesh), mesh); };
  const Group experts = expert_group(static_cast<int>(config.parallelism.expert_parallel_degree));
  StepsWithRounds observer(config.mesh_shape().num_ranks());
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = num_steps + 1,
              .interpose = [&](Ops& ops, Mesh& mesh) -> std::unique_ptr<RankInterposer> {
                if (knows == Knows::nothing) return timed(ops, mesh);
                return std::make_unique<RankWithComm>(timed(ops, mesh), experts, [&](Comm& comm) {  // times no exchange
                  return std::make_unique<KnowingComm>(comm, config.model.num_hidden_layers);
                });
              }},
             observer);
  return {seconds_of(observer.steps.steps),
          observer.rounds_per_exchange * static_cast<double>(config.model.num_hidden_layers)};
}

/// Every sequence has the same choices, and every rank equally many sequences.
double uneven_of(const Choice& choice, const RunConfig& config) {
  const std::int64_t P = config.parallelism.expert_parallel_degree, k = config.model.mixture.num_experts_per_tok,
                     experts_of_rank = config.model.mixture.num_experts / P, tokens = config.training.seq_len;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(P));
  for (std::int64_t n = 0; n < tokens; ++n)
    for (std::int64_t j = 0; j < k; ++j) ++rows.at(static_cast<std::size_t>(choice(n, j) / experts_of_rank));
  return static_cast<double>(P * *std::max_element(rows.begin(), rows.end())) / static_cast<double>(tokens * k);
}

std::vector<Loads> all_loads(const RunConfig& config) {
  Loads even = {"even"}, trained = {"trained"};
  for (const std::vector<std::int64_t>& layer : testing::trained_loads()) {
    const auto num_experts = std::ssize(layer);
    even.layers.push_back(
        {[=](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((2 * n + j) % num_experts); }});
    trained.layers.push_back({testing::choice_with(layer, config.training.seq_len)});
  }
  for (Loads* const loads : {&even, &trained})
    for (Load& layer : loads->layers) layer.uneven = uneven_of(layer.choice, config);
  return {even, trained};
}

void compare(const RunConfig& config, int num_turns) {
  fmt::print("{:<9} {:>13} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>15}\n", "loads", "most / mean", "rounds", "at most",
             "step ms", "known ms", "ratio", "lowest", "highest");
  for (const Loads& loads : all_loads(config)) {
    std::vector<double> seconds, known, ratios;
    double rounds = 0, limit = 0;
    for (const Load& layer : loads.layers) limit += std::ceil(layer.uneven / config.moe.dispatch_bound) + 1;
    for (int turn = 0; turn < num_turns; ++turn) {
      const Measured as_it_is = measured(config, loads, Knows::nothing),
                     knowing = measured(config, loads, Knows::loads);
      if (knowing.rounds > static_cast<double>(loads.layers.size()))
        throw Error("rows that are known take more rounds");
      seconds.push_back(as_it_is.seconds), known.push_back(knowing.seconds);
      ratios.push_back(as_it_is.seconds / knowing.seconds);
      rounds = as_it_is.rounds;
    }
    const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
    fmt::print("{:<9} {:>13.2f} {:>9} {:>9} {:>9.2f} {:>9.2f} {:>7.3f} {:>8.3f} {:>15.3f}\n", loads.name,
               loads.most_uneven(), rounds, limit, 1e3 * median(seconds), 1e3 * median(known), median(ratios), *lowest,
               *highest);
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  return run_in_turns(argc, argv, 5, default_options(), compare);
}
