// Runs that are killed at random moments, many of them inside a save, and started again by the same command.
#include "resume/small_run.h"

#include "checkpoint/state/step_folders.h"
#include "checkpoint/steps_in.h"
#include "cli/program.h"
#include "spec/config/config_reader.h"
#include "tree/tree.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>
#include <thread>

namespace echelon::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

enum class Victim : std::uint8_t { process, mpi_rank, job };

class Kills : public SmallRun {
 protected:
  static constexpr std::int64_t num_steps = 1'000'000;

  RunConfig config(const std::string& folder, int num_ranks) const {
    RunConfig config = SmallRun::config(folder);
    config.training.steps = num_steps;
    config.lr_scheduler.decay = LrDecay::none;
    config.checkpoint.interval = 4;
    config.checkpoint.keep_latest_k = 2;
    config.metrics.log_freq = 1;
    config.parallelism.data_parallel_shard_degree = num_ranks;
    return config;
  }

  /// The command lines of processes that name the file.
  static std::string processes_of(const std::string& config) {
    std::string found;
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
      std::ifstream file(process.path() / "cmdline");
      std::string words;
      std::getline(file, words);  // does not throw if the process ends meanwhile
      if (words.find(config) != std::string::npos) found += words + "\n";
    }
    return found;
  }

  /// Starts the run of a config file and kills it some milliseconds later. Returns its output.
  static std::string start_and_kill(const std::string& config, Victim victim, int milliseconds) {
    const std::string program = ECHELON_BINARY_DIR "/echelon train " + config;
    const std::string seconds = fmt::format("{:.3f}", milliseconds / 1000.0);
    const std::string mpirun = "mpirun --allow-run-as-root --oversubscribe -n 2 ";
    std::vector<std::string> command;
    if (victim == Victim::process) command = {"sh", "-c", "timeout -s KILL " + seconds + " " + program};
    if (victim == Victim::job) command = {"sh", "-c", "timeout -s KILL " + seconds + " " + mpirun + program};
    if (victim == Victim::mpi_rank)
      command = {"sh", "-c",
                 mpirun + "sh -c 'if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then (sleep " + seconds +
                     "; kill -KILL $$) & fi; exec " + program + "'"};
    const Outcome outcome = run_command(command);
    EXPECT_NE(outcome.status, 0);
    // Ranks whose launcher is gone end on their own.
    for (int i = 0; i < 100 && !processes_of(config).empty(); ++i) std::this_thread::sleep_for(100ms);
    EXPECT_EQ(processes_of(config), "") << "a process is left";
    return outcome.out;
  }

  /// The step of the last checkpoint that a run announced.
  static std::int64_t last_announced(const std::string& output) {
    static const std::regex saved("saved [^\n]*/step-([0-9]+)\n");
    std::int64_t last = 0;
    for (std::sregex_iterator match(output.begin(), output.end(), saved), end; match != end; ++match)
      last = std::stoll((*match)[1]);
    return last;
  }

  /// Whole lines alone: the last one may be torn.
  static void expect_same_losses(const std::filesystem::path& metrics, const Steps& expected) {
    for (const std::string& line : tree::lines_of(tree::read_text(metrics))) {
      static const std::regex step_line("\\{\"step\":([0-9]+),\"loss\":([^,]+),.*\\}");
      std::smatch match;
      if (!std::regex_match(line, match, step_line)) continue;
      const std::int64_t step = std::stoll(match[1]);
      const auto found = expected.losses.find(step);
      if (found == expected.losses.end()) continue;
      EXPECT_EQ(std::stod(match[2]), found->second) << step;
    }
  }

  void expect_to_survive(Victim victim, int num_kills, unsigned seed) {
    const int num_ranks = 2;
    const std::string folder = "run";
    RunConfig config = this->config(folder, num_ranks);
    if (victim != Victim::job) config.checkpoint.async_mode = AsyncMode::async;
    RunConfig plain = this->config("plain", num_ranks);
    plain.training.steps = 600;
    plain.checkpoint.interval = 10'000;
    const Steps expected = run(plain);
    const std::string path = config.output.dir + ".toml";
    std::ofstream(path) << to_toml(config);
    std::mt19937 random(seed);
    int start = victim == Victim::process ? 40 : 900;
    std::int64_t announced = 0;
    // A busy machine may need longer until the first save.
    constexpr int most_more = 6;
    for (int i = 0; i < num_kills || (announced == 0 && i < num_kills + most_more); ++i) {
      const std::string output =
          start_and_kill(path, victim, std::uniform_int_distribution<int>(start, start + 400)(random));
      announced = std::max(announced, last_announced(output));
      if (announced == 0) start *= 2;
      const std::vector<std::int64_t> steps = steps_in(output_checkpoints(folder));
      const std::int64_t found = steps.empty() ? 0 : steps.back();
      ASSERT_GE(found, announced) << "kill " << i;
      if (found > 0) StateReader(checkpoint(folder, found)).verify();
    }
    ASSERT_GT(announced, 0);
    expect_same_losses(output(folder) / "metrics.jsonl", expected);
    // The next start removes what dead attempts left.
    ReportLog log;
    (void)run(config, log, steps_in(output_checkpoints(folder)).back() + 2);
    for (const auto& step : std::filesystem::directory_iterator(output_checkpoints(folder)))
      EXPECT_TRUE(find_manifest(step.path()).has_value()) << step.path();
    EXPECT_THAT(log.warnings, IsEmpty());
  }

  std::filesystem::path output_checkpoints(const std::string& folder) const { return output(folder) / "checkpoint"; }
};

bool is_long() { return std::getenv("ECHELON_LONG_TESTS") != nullptr; }

TEST_F(Kills, OfTheProcess) { expect_to_survive(Victim::process, is_long() ? 120 : 4, 1); }

TEST_F(Kills, OfOneMpiRank) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  expect_to_survive(Victim::mpi_rank, is_long() ? 40 : 2, 2);
}

TEST_F(Kills, OfTheWholeJob) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  expect_to_survive(Victim::job, is_long() ? 40 : 2, 3);
}

}  // namespace
}  // namespace echelon::testing
