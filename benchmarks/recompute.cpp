// What recomputation costs and frees: planned memory of each kind, and steps of all kinds in turns in one process, on
// one rank.
//
//     bench_recompute TURNS [--section.key=value ...]      0 turns: the plans alone
//
// A turn is a step of each kind, every other one in reverse; printed is the fastest of the turns. The arenas of all
// kinds lie in memory at once. Without options: GPT-2, 6 layers of 384, vocabulary 8192, T=256, B=8, float32.
#include "base/clock.h"
#include "comm/thread/thread_world.h"
#include "engine/device/rank_cores.h"
#include "engine/layout_run.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm_choice.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace echelon {
namespace {

using enum BlockOperation;

const std::vector<BlockOperations> kinds = {{}, {core_attn}, attention_internals, {mlp}, {core_attn, mlp}, whole_block};

std::vector<std::string> default_options() {
  return {"--model.model_type=gpt2",       "--model.hidden_size=384",        "--model.num_hidden_layers=6",
          "--model.num_attention_heads=6", "--model.vocab_size=8192",        "--training.seq_len=256",
          "--training.micro_batch_size=8", "--training.global_batch_size=8", "--model.max_position_embeddings=256"};
}

/// One way to run the model, and how long its steps took.
struct Kind {
  explicit Kind(const RunConfig& config) : blueprint(config) {}
  Blueprint blueprint;
  std::unique_ptr<RankRun> run = nullptr;
  std::vector<double> wall = {}, cpu = {};
  double loss = 0;

  [[nodiscard]] double flops() const {
    const RankBlueprint rank = blueprint.rank(0);
    std::int64_t sum = 0;
    for (const Action& action : rank.program(ProgramKind::training))
      for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).operations()) sum += op.flops;
    return static_cast<double>(sum);
  }
};

double fastest(const std::vector<double>& x) { return x.empty() ? 0 : *std::min_element(x.begin(), x.end()); }

void step(Kind& kind, const BatchSource& batches, std::int64_t number) {
  const RunConfig& config = kind.blueprint.config();
  const double wall = now_seconds();
  const std::clock_t cpu = std::clock();
  kind.loss =
      kind.run->step().run(ProgramKind::training, training_input(config, batches, number, LossScaler(config))).loss;
  if (number == 1) return;  // warms up
  kind.wall.push_back(now_seconds() - wall);
  kind.cpu.push_back(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
}

void print(const std::vector<std::unique_ptr<Kind>>& all) {
  fmt::print("{:<14} {:>10} {:>12} {:>10} {:>8} {:>10} {:>8} {:>10} {:>8}   loss\n", "recompute", "arena MiB",
             "activations", "workspace", "flops", "s/step", "of none", "cpu s", "of none");
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const Kind& none = *all.front();
  for (const auto& kind : all) {
    const RankBlueprint rank = kind->blueprint.rank(0);
    const MemoryPlan& memory = rank.memory(ProgramKind::training);
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
    fmt::print("{:<14} {:>10.1f} {:>12.1f} {:>10.1f} {:>8.3f} {:>10.3f} {:>8.3f} {:>10.3f} {:>8.3f}   {}\n",
               fmt::format("{}", fmt::join(names_of(kind->blueprint.config().training.recompute), ",")),
               mib(rank.arena_bytes()), mib(memory.peak_bytes(MemoryCategory::activations)),
               mib(memory.peak_bytes(MemoryCategory::workspace)), ratio(kind->flops(), none.flops()),
               fastest(kind->wall), ratio(fastest(kind->wall), fastest(none.wall)), fastest(kind->cpu),
               ratio(fastest(kind->cpu), fastest(none.cpu)), kind->loss);
  }
}

void compare(const RunConfig& config, int num_turns) {
  std::vector<std::unique_ptr<Kind>> all;
  for (const BlockOperations& operations : kinds) {
    RunConfig of_kind = config;
    of_kind.training.recompute = operations;
    all.push_back(std::make_unique<Kind>(of_kind));
  }
  const SomeTokens batches(config.model.vocab_size);
  if (num_turns > 0)
    run_thread_ranks(all.front()->blueprint.mesh(), {}, [&](Mesh& mesh) {
      const std::unique_ptr<Ops> ops = make_cpu_ops({.num_threads = claim_cores(config, mesh).num_threads});
      for (const auto& kind : all) {
        kind->run = std::make_unique<RankRun>(kind->blueprint, mesh, *ops);
        kind->run->model().initialize(config.training.seed, *ops);
      }
      for (int turn = 0; turn <= num_turns; ++turn)
        for (std::size_t i = 0; i < all.size(); ++i)
          step(*all[turn % 2 == 0 ? i : all.size() - 1 - i], batches, turn + 1);
      for (const auto& kind : all) kind->run = nullptr;
    });
  print(all);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  try {
    const int num_turns = argc > 1 ? std::atoi(argv[1]) : 3;
    std::vector<std::string> options = default_options();
    if (argc > 2) options.assign(argv + 2, argv + argc);
    fmt::print("{}\n", describe_products(choose_products({})));
    compare(read_run_config({.path = {}, .arguments = options, .read_model = {}}), num_turns);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
