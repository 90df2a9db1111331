// The bubble of every schedule, measured on thread ranks beside its theory. usage: bench_bubbles [ranks = 4]
// [microbatches = 8] [forward ms = 10] [input ms = 10] [weight ms = 10]
//
// A tiny model goes through the engine as it is; each pass of a rank then sleeps until it has taken the wanted time, so
// the number of cores does not matter.
//
//
// Claim (schedules): The bubble of every schedule, measured on four thread ranks, is that of its
//   theory.
// Bound: at most 1.5 points above it.
// Run: build/release/bench_bubbles
//
// bubble     (cost - work) / cost, the cost being the longest time of a rank from its first pass to its last (Qi et
//            al. 2023, arXiv:2401.10241, table 5), and
//            the work the mean time that ranks spend in passes
// a step     the same with the time from the begin of one step to that of the next: clipping needs the norm over all
//            ranks, so nobody begins the next step
// before
//            the last rank has ended its last pass. Its theory is the time from the first pass of any rank to the
//            last of any.
#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "engine/layout_run.h"
#include "schedule/generators/catalog.h"
#include "schedule/simulation/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace echelon {
namespace {

constexpr int num_steps = 3;  // after one that nobody looks at

/// Counts for nothing but the length of passes.
class AnyTokens final : public BatchSource {
 public:
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>((sequence + i) % 32);
  }
};

struct Pass {
  double start = 0, end = 0;
};

/// Makes each pass as long as it is wanted, and remembers when it was.
class LongPasses final : public RankInterposer, public StepObserver {
 public:
  LongPasses(Ops& ops, Mesh& mesh, const PassTimes& times, double share, std::vector<Pass>& passes)
      : ops_(ops), mesh_(mesh), times_(times), share_(share), passes_(passes) {}

  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  void attach(RankRun& run) override { run.step().observe_actions(*this); }

  void begins(const Action& action, ActionPart part) override {
    seconds_ = part == ActionPart::perform ? seconds_of(action.kind) : 0;
    if (seconds_ > 0) start_ = now_seconds();
  }
  void ends() override {
    if (seconds_ == 0) return;
    const double left = start_ + seconds_ - now_seconds();
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    passes_.push_back({start_, now_seconds()});
  }

 private:
  [[nodiscard]] double seconds_of(ActionKind kind) const {
    if (kind == ActionKind::forward) return share_ * times_.forward / 1000;
    if (kind == ActionKind::backward) return share_ * (times_.backward_input + times_.backward_weight) / 1000;
    if (kind == ActionKind::backward_input) return share_ * times_.backward_input / 1000;
    return kind == ActionKind::backward_weight ? share_ * times_.backward_weight / 1000 : 0;
  }

  Ops& ops_;
  Mesh& mesh_;
  PassTimes times_;
  double share_;  // of a rank's work in one of its stages
  std::vector<Pass>& passes_;
  double seconds_ = 0, start_ = 0;
};

RunConfig tiny_run(int num_stages, int num_ranks, int num_microbatches) {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = config.model.intermediate_size = config.model.vocab_size = 32;
  config.model.num_attention_heads = config.model.num_key_value_heads = 2;
  config.model.head_dim = 16;
  config.model.num_hidden_layers = num_stages;
  config.model.max_position_embeddings = 8;
  config.training.seq_len = 8;
  config.training.global_batch_size = num_microbatches;
  config.parallelism.pipeline_parallel_degree = num_ranks;
  return config;
}

struct Costs {
  double longest_rank = 0, step = 0, work = 0;  // in one unit of time
  [[nodiscard]] double bubble() const { return 100 * (longest_rank - work) / longest_rank; }
  [[nodiscard]] double bubble_of_step() const { return 100 * (step - work) / step; }
};

// Of the middle one of the steps.
Costs measured(const std::vector<std::vector<Pass>>& passes) {
  std::vector<double> longest, steps, work;
  for (int step = 1; step <= num_steps; ++step) {
    double cost = 0, seconds = 0;
    for (const std::vector<Pass>& of_rank : passes) {
      const auto count = static_cast<std::ptrdiff_t>(of_rank.size() / (num_steps + 2));
      const auto first = of_rank.begin() + step * count, last = first + count - 1;
      cost = std::max(cost, last->end - first->start);
      for (auto pass = first; pass <= last; ++pass) seconds += pass->end - pass->start;
      if (&of_rank == &passes.front()) steps.push_back((last + 1)->start - first->start);
    }
    longest.push_back(cost);
    work.push_back(seconds / static_cast<double>(passes.size()));
  }
  return {median(longest), median(steps), median(work)};
}

Costs run(const Schedule& schedule, const PassTimes& times) {
  const int num_ranks = static_cast<int>(schedule.ranks.size());
  const Blueprint blueprint(tiny_run(schedule.num_stages, num_ranks, schedule.num_microbatches), schedule);
  std::vector<std::vector<Pass>> passes(schedule.ranks.size());
  const AnyTokens tokens;
  RunObserver nobody;
  const double share = static_cast<double>(num_ranks) / schedule.num_stages;
  run_layout(
      {.blueprint = blueprint,
       .batches = tokens,
       .num_steps = num_steps + 2,
       // A permit for each: who sleeps in a pass keeps nobody from computing.
       .run_ranks = [](const MeshShape& shape,
                       const auto& body) { run_thread_ranks(shape, {.compute_permits = shape.num_ranks()}, body); },
       .interpose =
           [&](Ops& ops, Mesh& mesh) {
             return std::make_unique<LongPasses>(ops, mesh, times, share, passes[mesh.rank()]);
           }},
      nobody);
  return measured(passes);
}

Costs theory(const Schedule& schedule, const PassTimes& times) {
  const Timeline timeline = simulate_schedule(schedule, times);
  double last = 0;
  for (const Event& event : timeline.events) last = std::max(last, event.end);
  const double work = schedule.num_microbatches * (times.forward + times.backward_input + times.backward_weight);
  return {longest_rank(timeline, static_cast<int>(schedule.ranks.size())), last, work};
}

void compare(int num_ranks, int num_microbatches, const PassTimes& times) {
  fmt::print("{} ranks, {} microbatches; forward {} ms, backward_input {} ms, backward_weight {} ms\n\n", num_ranks,
             num_microbatches, times.forward, times.backward_input, times.backward_weight);
  fmt::print("| schedule | bubble in theory | measured | a step in theory | measured |\n|---|---|---|---|---|\n");
  for (const ScheduleEntry& entry : all_schedules()) {
    const ScheduleRequest request = {.num_ranks = num_ranks,
                                     .num_microbatches = num_microbatches,
                                     .num_virtual = std::min(2, entry.most_virtual),
                                     .times = times};
    const Schedule schedule = make_schedule(entry.kind, request, {"schedule", "virtual", "microbatches", "memory"});
    const Costs expected = theory(schedule, times), found = run(schedule, times);
    fmt::print("| {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n", entry.name, expected.bubble(), found.bubble(),
               expected.bubble_of_step(), found.bubble_of_step());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  const auto number = [&](int index, double otherwise) { return index < argc ? std::atof(argv[index]) : otherwise; };
  const echelon::PassTimes times = {
      .forward = number(3, 10), .backward_input = number(4, 10), .backward_weight = number(5, 10)};
  echelon::compare(static_cast<int>(number(1, 4)), static_cast<int>(number(2, 8)), times);
  return 0;
}
