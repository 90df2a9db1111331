// A step with experts over thread ranks and even loads: rows go to their experts, or all tokens to all ranks.
//
//     bench_expert_gather [turns = 5] [--section.key=value ...]
//
// Time is that of a core for each rank (rank_seconds.h), where bytes take what it takes to copy and to sum them. Bytes
// are those that the trace of a rank sends to others over the group of its experts (tests count those of a run), beside
// the closed forms: in a forward and a backward pass of a layer, with N tokens of D float32,
//
//     directly    2 (P - 1) / P k N (2 * 4 D + 4) + 4 (P - 1) (E + 1)
//     to all      2 (P - 1) N (2 * 4 D + 4 k) + 4 (P - 1) k N
#include "in_turns.h"
#include "parity/forced_router.h"
#include "rank_seconds.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr int num_steps = 3;  // after one that does not count

std::vector<std::string> default_options() {
  return {
      "--model.model_type=qwen3_moe",          "--model.hidden_size=256",  "--model.num_hidden_layers=4",
      "--model.num_attention_heads=4",         "--model.vocab_size=512",   "--model.max_position_embeddings=512",
      "--model.intermediate_size=512",         "--model.num_experts=8",    "--model.num_experts_per_tok=8",
      "--model.moe_intermediate_size=512",     "--training.seq_len=256",   "--training.micro_batch_size=1",
      "--training.global_batch_size=4",        "--training.num_threads=1", "--parallelism.data_parallel_shard_degree=4",
      "--parallelism.expert_parallel_degree=4"};
}

struct Measured {
  std::vector<double> seconds = {};
  std::int64_t bytes = 0;  // of a layer and step
};

void measure(RunConfig config, ExpertDispatch dispatch, Measured& measured) {
  config.parallelism.expert_dispatch = dispatch;
  const Blueprint blueprint(config);
  const SomeTokens batches(config.model.vocab_size);
  const std::int64_t E = config.model.mixture.num_experts, k = config.model.mixture.num_experts_per_tok;
  const Interpose force =
      testing::forced([=](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((k * n + j) % E); },
                      config.training.seq_len);
  StepsOfRanks observer(config.mesh_shape().num_ranks());
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = num_steps + 1,
              .interpose = [&](Ops& ops, Mesh& mesh) { return std::make_unique<TimedRank>(force(ops, mesh), mesh); }},
             observer);
  measured.seconds.push_back(seconds_of(observer.steps));
  measured.bytes = 0;
  const RankBlueprint rank = blueprint.rank(0);
  const Group experts = expert_group(static_cast<int>(config.parallelism.expert_parallel_degree));
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& comm : rank.trace(ProgramKind::training).of(action).communications())
      if (comm.group == experts) measured.bytes += comm.sent_bytes;
  measured.bytes /= config.model.num_hidden_layers;
}

void compare(const RunConfig& config, int num_turns) {
  Measured direct, to_all;
  std::vector<double> ratios;
  for (int turn = 0; turn < num_turns; ++turn) {
    measure(config, ExpertDispatch::direct, direct);
    measure(config, ExpertDispatch::all_gather, to_all);
    ratios.push_back(direct.seconds.back() / to_all.seconds.back());
  }
  const std::int64_t P = config.parallelism.expert_parallel_degree, E = config.model.mixture.num_experts,
                     k = config.model.mixture.num_experts_per_tok, D = config.model.hidden_size,
                     N = config.training.micro_batch_size * config.training.seq_len;
  const auto print = [](const char* name, const Measured& of, std::int64_t formula) {
    fmt::print("{:<9} {:>9.2f} ms a step, {} bytes of a layer, by the closed form {}\n", name, 1e3 * median(of.seconds),
               of.bytes, formula);
  };
  print("directly", direct, 2 * k * N / P * (P - 1) * (8 * D + 4) + 4 * (P - 1) * (E + 1));
  print("to all", to_all, 2 * (P - 1) * N * (8 * D + 4 * k) + 4 * (P - 1) * k * N);
  const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print("to all {:.3f}x as fast, {:.3f} to {:.3f} in {} turns\n", median(ratios), *lowest, *highest, num_turns);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  return run_in_turns(argc, argv, 5, default_options(), compare);
}
