// What the shared expert hides of an exchange with experts on other ranks, on a transport that takes time and no core:
// an exchange is done when its bytes have gone over a link, one after the other, and who waits for it sleeps.
//
//     bench_expert_overlap [steps] [--section.key=value ...]
//
// S: seconds of the shared expert in a step, as the difference to the same model without one. X: seconds of the link.
// Hidden: S + X - (step with both - step with neither). Printed are medians of steps.
#include "base/clock.h"
#include "base/median.h"
#include "comm/timed/timed_mesh.h"
#include "engine/layout_run.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <thread>

namespace echelon {
namespace {

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
          "--moe.dispatch_bound=2"};
}

/// A rank at a link.
class LinkedRank final : public RankInterposer {
 public:
  LinkedRank(Ops& ops, Mesh& mesh, double seconds_per_byte, std::atomic<double>& link_seconds)
      : ops_(ops),
        seconds_per_byte_(seconds_per_byte),
        link_seconds_(link_seconds),
        is_first_(mesh.rank() == 0),
        mesh_(mesh, [this](const TimedCall& call) { hear(call); }) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  void hear(const TimedCall& call) {
    if (call.kind != CommKind::all_to_all || call.phase == TimedCall::Phase::poll) return;
    if (call.phase == TimedCall::Phase::start) {
      const double seconds = static_cast<double>(call.num_bytes) / 2 * seconds_per_byte_;  // half stays on the rank
      ends_.push_back(std::max(call.start, ends_.empty() ? 0 : ends_.back()) + seconds);
      if (is_first_) link_seconds_ = link_seconds_ + seconds;
      return;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(ends_.front() - now_seconds()));
    ends_.pop_front();
  }

  Ops& ops_;
  double seconds_per_byte_;
  std::atomic<double>& link_seconds_;
  bool is_first_;
  std::deque<double> ends_ = {};  // of exchanges, in the order in which they are waited for
  TimedMesh mesh_;
};

class StepTimes final : public RunObserver {
 public:
  void ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& /*result*/) override {
    if (rank.mesh.rank() == 0) ends_.push_back(now_seconds());
  }
  [[nodiscard]] double median_seconds() const {
    std::vector<double> seconds;
    for (std::size_t i = 1; i < ends_.size(); ++i) seconds.push_back(ends_[i] - ends_[i - 1]);
    return median(std::move(seconds));
  }

 private:
  std::vector<double> ends_;
};

struct Measured {
  double step = 0, link = 0;  // seconds of a step
};

Measured measured(const RunConfig& config, std::int64_t num_steps, double seconds_per_byte) {
  const Blueprint blueprint(config);
  const SomeTokens batches(config.model.vocab_size);
  std::atomic<double> link_seconds = 0;
  StepTimes times;
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = num_steps + 1,
              .interpose =
                  [&](Ops& ops, Mesh& mesh) {
                    return std::make_unique<LinkedRank>(ops, mesh, seconds_per_byte, link_seconds);
                  }},
             times);
  return {times.median_seconds(), link_seconds / static_cast<double>(num_steps + 1)};
}

void compare(const RunConfig& with, std::int64_t num_steps) {
  RunConfig without = with;
  without.model.mixture.shared_expert_intermediate_size = 0;
  without.model.mixture.gates_shared_expert = false;
  const double link_of_a_byte = measured(with, 1, 1e-12).link / 1e-12;
  fmt::print("{:>6} {:>9} {:>9} {:>9} {:>9} {:>16}\n", "X / S", "S ms", "X ms", "step ms", "hidden ms", "of shorter");
  for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const double neither = measured(without, num_steps, 0).step, alone = measured(with, num_steps, 0).step,
                 S = alone - neither, X = ratio * S;
    const double both = measured(with, num_steps, X / link_of_a_byte).step, hidden = S + X - (both - neither);
    fmt::print("{:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>16.3f}\n", ratio, 1e3 * S, 1e3 * X, 1e3 * both,
               1e3 * hidden, hidden / std::min(S, X));
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  try {
    const int num_steps = argc > 1 ? std::atoi(argv[1]) : 15;
    std::vector<std::string> options = default_options();
    if (argc > 2) options.insert(options.end(), argv + 2, argv + argc);
    compare(read_run_config({.path = {}, .arguments = options, .read_model = {}}), num_steps);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
