// What it takes to plan the checkpoints of Llama-3 405B on 16,384 ranks, tp 8 x pp 16 x dp 128, without data: the file
// of one rank, the files of all ranks (rank 0 lists them), and the manifest. usage: bench_saves
#include "blueprint/save_plan.h"
#include "checkpoint/state/state_file_plan.h"
#include "spec/config/config_reader.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace echelon {
namespace {

template <class F>
double milliseconds_of(const F& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// All that a rank plans: its part of the model, the rectangles that it writes and their places in its file.
std::int64_t planned_bytes(const Blueprint& blueprint, int rank) {
  const ModelPart part = make_model_part(blueprint.config(), blueprint.schedule(), rank);
  return StateFilePlan(state_slices(part)).num_bytes();
}

void plan(int zero_level) {
  constexpr double million = 1e6;
  const RunConfig config =
      read_run_config({.path = std::string(ECHELON_SOURCE_DIR) + "/examples/textbook/llama3-405b.toml",
                       .arguments = {"--parallelism.zero_level=" + std::to_string(zero_level)},
                       .read_model = {}});
  const Blueprint blueprint(config);
  std::vector<double> of_ranks;
  std::int64_t sum = 0;
  for (int rank = 0; rank < blueprint.mesh().num_ranks(); rank += 127)
    of_ranks.push_back(milliseconds_of([&] { sum += planned_bytes(blueprint, rank); }));
  std::ranges::sort(of_ranks);
  std::optional<SavePlan> all;
  const double of_all = milliseconds_of([&] { all.emplace(blueprint); });
  std::string text;
  const double of_text = milliseconds_of([&] { text = to_text(all->manifest(1, {{.attempt = 1}})); });
  std::printf(
      "ZeRO-%d\ta rank's plan: median %.2f ms, most %.2f ms\tall %d ranks: %.0f ms\tmanifest: %.2f MB in %.0f ms, at "
      "most "
      "%.2f MB\tcheckpoint: %.1f GB, at most %.1f MB of a rank\n",
      zero_level, of_ranks[of_ranks.size() / 2], of_ranks.back(), blueprint.mesh().num_ranks(), of_all,
      static_cast<double>(text.size()) / million, of_text, static_cast<double>(all->most_manifest_bytes()) / million,
      static_cast<double>(all->num_bytes()) / (1000 * million), static_cast<double>(all->most_bytes()) / million);
  if (sum == 0) std::puts("nothing is written");
}

}  // namespace
}  // namespace echelon

int main() {
  echelon::plan(1);
  echelon::plan(3);
}
