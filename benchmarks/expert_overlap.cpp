// What the shared expert hides of an exchange with experts on other ranks, and what computing meanwhile costs where
// there is nothing to hide.
//
//     bench_expert_overlap [turns = 5] [--section.key=value ...]
//
// First with links that take time and no core (rank_events.h), in one kind of pass at a time. S: its seconds of the
// shared expert, as the difference to the same model without one. X: its seconds of the links. Hidden: X - (step - step
// without links). Then without links, where cores move the rows: a step that waits for each exchange when it starts it,
// over one that computes meanwhile.
//
// Time is that of a core for each rank. Ranks share one core, so none helps another one.
#include "in_turns.h"
#include "rank_events.h"
#include "rank_seconds.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"

#include <fmt/format.h>

#include <array>

namespace echelon {
namespace {

constexpr int num_steps = 3;  // after one that does not count

std::vector<std::string> default_options() {
  return {"--model.model_type=qwen2_moe",
          "--model.hidden_size=256",
          "--model.num_hidden_layers=2",
          "--model.num_attention_heads=4",
          "--model.vocab_size=4096",
          "--model.max_position_embeddings=512",
          "--model.intermediate_size=1024",
          "--model.num_experts=8",
          "--model.num_experts_per_tok=2",
          "--model.moe_intermediate_size=128",
          "--model.shared_expert_intermediate_size=1024",
          "--training.seq_len=512",
          "--training.micro_batch_size=2",
          "--training.global_batch_size=4",
          "--training.num_threads=1",
          "--parallelism.data_parallel_shard_degree=2",
          "--parallelism.expert_parallel_degree=2",
          "--moe.dispatch_bound=2",
          "--moe.force_balance=true"};
}

void run_steps(const RunConfig& config, const Interpose& interpose, RunObserver& observer) {
  const Blueprint blueprint(config);
  const SomeTokens batches(config.model.vocab_size);
  run_layout({.blueprint = blueprint, .batches = batches, .num_steps = num_steps + 1, .interpose = interpose},
             observer);
}

class EventsOfRanks final : public RunObserver {
 public:
  explicit EventsOfRanks(int num_ranks) : steps_(static_cast<std::size_t>(num_ranks)) {}
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& /*result*/) override {
    RankEvents events = dynamic_cast<EventMesh&>(rank.mesh).end_step();
    if (step > 1) steps_.at(static_cast<std::size_t>(rank.mesh.rank())).push_back(std::move(events));
  }
  [[nodiscard]] std::vector<RankEvents> medians() const {
    std::vector<RankEvents> ranks;
    for (const std::vector<RankEvents>& steps : steps_) ranks.push_back(median_of(steps));
    return ranks;
  }

 private:
  std::vector<std::vector<RankEvents>> steps_;
};

void compare_on_links(const RunConfig& with, int num_turns) {
  RunConfig without = with;
  without.model.mixture.shared_expert_intermediate_size = 0;
  without.model.mixture.gates_shared_expert = false;
  const Interpose record = [](Ops& ops, Mesh& mesh) { return std::make_unique<EventRank>(ops, mesh); };
  EventsOfRanks of_with(with.mesh_shape().num_ranks()), of_without(with.mesh_shape().num_ranks());
  for (int turn = 0; turn < num_turns; ++turn) {
    run_steps(with, record, of_with);
    run_steps(without, record, of_without);
  }
  const std::vector<RankEvents> ranks = of_with.medians(), ranks_without = of_without.medians();
  const double alone = seconds_of(ranks, {});
  fmt::print("{:<9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>16}\n", "pass", "X / S", "S ms", "X ms", "step ms", "hidden ms",
             "of shorter");
  for (const ActionKind pass : {ActionKind::forward, ActionKind::backward}) {
    const double S = core_seconds_of(ranks.front(), pass) - core_seconds_of(ranks_without.front(), pass);
    for (const double ratio : {0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0}) {
      const double X = ratio * S, of_byte = X / static_cast<double>(row_bytes_of(ranks.front(), pass)),
                   step = seconds_of(ranks, {pass, of_byte}), hidden = alone + X - step;
      fmt::print("{:<9} {:>6.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>16.3f}\n", name_of(pass), ratio, 1e3 * S,
                 1e3 * X, 1e3 * step, 1e3 * hidden, hidden / std::min(S, X));
    }
  }
}

class WaitingComm final : public ForwardingComm {
 public:
  using ForwardingComm::ForwardingComm;
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    inner().all_to_all_rows(exchange).wait();
    return {};
  }
};

void compare_on_cores(const RunConfig& config, int num_turns) {
  const int num_ranks = config.mesh_shape().num_ranks();
  const Group experts = expert_group(static_cast<int>(config.parallelism.expert_parallel_degree));
  const Interpose meanwhile = [](Ops& ops, Mesh& mesh) {
    return std::make_unique<TimedRank>(std::make_unique<PlainRank>(ops, mesh), mesh);
  };
  const Interpose at_once = [&](Ops& ops, Mesh& mesh) {
    return std::make_unique<RankWithComm>(meanwhile(ops, mesh), experts,
                                          [](Comm& comm) { return std::make_unique<WaitingComm>(comm); });
  };
  std::vector<double> ratios;
  for (int turn = 0; turn < num_turns; ++turn) {
    StepsOfRanks overlapped(num_ranks), waiting(num_ranks);
    run_steps(config, meanwhile, overlapped);
    run_steps(config, at_once, waiting);
    ratios.push_back(seconds_of(waiting.steps) / seconds_of(overlapped.steps));
  }
  const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print("without links, waiting at once / computing meanwhile: {:.3f} ({:.3f} to {:.3f})\n", median(ratios),
             *lowest, *highest);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  return run_in_turns(argc, argv, 5, default_options(), [](const RunConfig& config, int num_turns) {
    compare_on_links(config, num_turns);
    compare_on_cores(config, num_turns);
  });
}
