// What it takes to time a step of Llama-3 405B on 16,384 GPUs without running it: its blueprint and its events, on one
// core; even, and with ranks that differ. usage: bench_simulation [REPEATS]
//
// Claim (plans): A step of Llama-3 405B on 16,384 GPUs is simulated without running it.
// Bound: 12,815 events in 0.05 s of one core.
// Run: build/release/bench_simulation
#include "predict/simulation/simulate.h"

#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace echelon {
namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void time_layout(const std::string& name, const std::vector<std::string>& keys, const SimulationOptions& options,
                 int repeats) {
  const RunConfig config =
      read_run_config({.path = std::string(ECHELON_SOURCE_DIR) + "/examples/textbook/llama3-405b.toml",
                       .arguments = keys,
                       .read_model = {}});
  const MachineSpec machine = read_machine("h100");
  double least = 1e300;
  std::int64_t num_events = 0;
  for (int i = 0; i < repeats; ++i) {
    const double begin = processor_seconds();
    const Blueprint blueprint(config);
    num_events = simulate(blueprint, machine, options).num_events;
    least = std::min(least, processor_seconds() - begin);
  }
  fmt::print("{:<44} {:>8} events {:>9.1f} ms\n", name, num_events, 1e3 * least);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const std::vector<std::string> one_f_one_b = {"--parallelism.pipeline_parallel_schedule=1F1B",
                                                "--parallelism.pipeline_parallel_layout=Et*7|(t*8|)*14,t*7L"};
  time_layout("interleaved 1F1B, 128 stages", {}, {}, repeats);
  time_layout("1F1B, 16 stages", one_f_one_b, {}, repeats);
  time_layout("interleaved, ZeRO-3", {"--parallelism.zero_level=3"}, {}, repeats);
  time_layout("interleaved, one slow rank", {}, {.slow_ranks = {{17, 1.3}}}, repeats);
  time_layout(
      "interleaved, eight slow ranks of eight paces", {},
      {.slow_ranks =
           {{17, 1.3}, {300, 1.2}, {900, 1.1}, {2000, 1.4}, {5000, 1.5}, {9000, 1.6}, {12000, 1.7}, {16000, 1.8}}},
      repeats);
}
