// Jobs of Slurm, in a cluster of this test's own: which signals reach the ranks, and the example that queues itself
// again before its time limit.
#include "cli/program.h"
#include "resume/small_run.h"

#include "checkpoint/steps_in.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace echelon::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string tree = ECHELON_SOURCE_DIR, cluster = tree + "/tests/hosts/slurm_cluster";

std::string obstacle() {
  if (!fs::exists(ECHELON_BINARY_DIR "/mpi_failures")) return "built without MPI";
  return run_command({cluster, "--check"}).out;
}

/// Processes with this text in their command line.
std::vector<std::string> processes_of(const std::string& text) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code ignored;
    if (fs::exists(entry.path() / "exe", ignored) && get(entry.path() / "cmdline").find(text) != std::string::npos)
      found.push_back(entry.path().filename());
  }
  return found;
}

class Slurm : public SmallRun {
 protected:
  static constexpr std::int64_t many_steps = 1'000'000;

  void SetUp() override {
    if (const std::string why = obstacle(); !why.empty()) GTEST_SKIP() << why;
    SmallRun::SetUp();
    // A tree as the example expects it, with data that it need not make.
    fs::create_directories(scratch_ / "build");
    fs::create_directory_symlink(ECHELON_BINARY_DIR, scratch_ / "build/release");
    fs::create_directories(scratch_ / "examples/mpirun");
    fs::create_directories(scratch_ / "corpus");
    put(scratch_ / "corpus/train.bin", "");
  }
  void TearDown() override { EXPECT_THAT(processes_of(scratch_.path().string()), IsEmpty()); }

  RunConfig config(int num_tasks, std::int64_t num_steps) const {
    RunConfig config = SmallRun::config("out");
    config.training.steps = num_steps;
    config.lr_scheduler.decay = LrDecay::none;
    config.checkpoint.interval = many_steps;
    config.parallelism.data_parallel_shard_degree = 2;
    config.parallelism.tensor_parallel_degree = num_tasks > 2 ? 2 : 1;
    config.parallelism.pipeline_parallel_degree = num_tasks > 4 ? 2 : 1;
    return config;
  }
  void write(const RunConfig& config) const { put(scratch_ / "examples/mpirun/train.toml", to_toml(config)); }

  /// Neither a job that hangs nor a test that is killed leaves anything behind.
  Outcome run_in_cluster(const std::string& script, const Watch& watch) const {
    put(scratch_ / "script", "cd '" + scratch_.path().string() + "'\n" + script);
    return run_command({"setpriv", "--pdeathsig", "KILL", "timeout", "-s", "KILL", "100", "setpriv", "--pdeathsig",
                        "KILL", cluster, "bash", scratch_ / "script"},
                       watch);
  }
};

// srun passes SIGUSR1 on, as scancel does with all signals, SIGTERM being its own. Other signals end srun, which ends
// its tasks at once: no checkpoint is saved then.
TEST_F(Slurm, PassesSignalsOnToTheRanks) {
  const std::string begin =
      "rm -rf out; srun -n 2 --mpi=pmix --kill-on-bad-exit=0 --wait=30 build/release/echelon train "
      "examples/mpirun/train.toml >log 2>&1 & srun=$!\n"
      "for i in $(seq 200); do ! grep -q 'step:  3' log || break; sleep 0.05; done; ";
  const std::string end =
      "\nwait $srun; echo status $? saved $(ls out/checkpoint/step-*/*-manifest.json 2>/dev/null | wc -l)\n";
  const std::string job = "$(squeue --noheader --format=%i)";
  write(config(2, many_steps));
  const Outcome outcome = run_in_cluster(begin + "scancel --signal=USR1 " + job + end +  //
                                             begin + "scancel " + job + end +            //
                                             begin + "kill -USR1 $srun" + end +          //
                                             begin + "kill -TERM $srun" + end,
                                         {});
  // SIGKILL follows srun's SIGTERM at once; either ends the tasks.
  const std::string saved = "status 75 saved 1\nstatus 75 saved 1\nstatus 75 saved 1\n";
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(saved + "status (137|143) saved 0\n")) << outcome.err;
}

// Slurm looks at time limits every 30 s and sends the signal of --signal up to a minute early, so it comes 30 s after
// the cluster has started, to a job that waits before so that there is less to compute.
TEST_F(Slurm, TheExampleQueuesItselfAgainBeforeItsTimeLimit) {
  write(config(8, many_steps));
  std::int64_t stopped = 0;
  const std::string submit = "sbatch --begin=now+12 --time=1 " + tree + "/examples/slurm/train.sbatch\n";
  const std::string follow =
      "while [ -n \"$(squeue --noheader)\" ]; do sleep 0.2; tail -qn 5 slurm-1.out 2>/dev/null; done\n"
      "cat slurm-1.out; scontrol show job 1\n";
  const Outcome outcome = run_in_cluster(submit + follow, {.when = "stopped after step", .then = [&] {
                                                             stopped = steps_in(output("out") / "checkpoint").back();
                                                             write(config(8, stopped + 3));
                                                           }});
  ASSERT_GT(stopped, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("resuming from step {} of", stopped)));
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("done after step {}", stopped + 3)));
  EXPECT_THAT(outcome.out, HasSubstr("Restarts=1"));
  EXPECT_THAT(outcome.out, HasSubstr("JobState=COMPLETED"));

  RunConfig plain = config(8, stopped + 3);
  plain.output.dir = output("plain").string();
  EXPECT_EQ(steps_of_metrics(output("out") / "metrics.jsonl"), run(plain));
  EXPECT_EQ(read_state(checkpoint("out", stopped + 3)), read_state(checkpoint("plain", stopped + 3)));
}

}  // namespace
}  // namespace echelon::testing
