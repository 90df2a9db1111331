// Signals to the program: a complete checkpoint and status 75, at any moment, on threads and on processes.
#include "resume/small_run.h"

#include "checkpoint/steps_in.h"
#include "cli/program.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Signals : public SmallRun {
 protected:
  static constexpr std::int64_t many_steps = 1'000'000;

  /// Two ranks; a learning rate that does not depend on the number of steps.
  RunConfig config(const std::string& folder) const {
    RunConfig config = SmallRun::config(folder);
    config.training.steps = many_steps;
    config.lr_scheduler.decay = LrDecay::none;
    config.checkpoint.interval = many_steps;
    config.parallelism.data_parallel_shard_degree = 2;
    return config;
  }
  std::string write(const RunConfig& config) const {
    const std::string path = config.output.dir + ".toml";
    std::ofstream(path) << to_toml(config);
    return path;
  }
  /// The checkpoint of the run's last step, which is complete.
  std::int64_t last_step(const std::string& folder) const {
    const std::vector<std::int64_t> steps = steps_in(output(folder) / "checkpoint");
    if (steps.empty()) return 0;
    StateReader(checkpoint(folder, steps.back())).verify();
    return steps.back();
  }
  /// The run that was ended continues as if it had not been.
  void expect_resumes(const std::string& folder) const {
    const std::int64_t step = last_step(folder);
    ASSERT_GT(step, 0);
    RunConfig config = this->config(folder);
    config.training.steps = step + 3;
    RunConfig plain = config;
    plain.output.dir = output(folder + "-plain").string();
    EXPECT_EQ(run(config), after(step, run(plain)));
  }
};

TEST_F(Signals, InAStepSaveAndEndWithStatus75) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    const std::string folder = "signal" + std::to_string(signal);
    const Outcome outcome = interrupt_echelon({"train", write(config(folder))}, "step:  2", signal);
    EXPECT_EQ(outcome.status, 75) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("stopped after step"));
    expect_resumes(folder);
  }
  EXPECT_EQ(interrupt_echelon({"train", write(config("interrupt"))}, "step:  2", SIGINT).status, 130);
  expect_resumes("interrupt");
}

TEST_F(Signals, InAnEvaluationEndIt) {
  RunConfig config = this->config("run");
  config.data.validation_path = config.data.path;
  config.training.eval_interval = 2;
  config.training.global_batch_size = 2;  // an evaluation of 32 batches
  config.training.eval_batches = 1'000'000;
  const Outcome outcome = interrupt_echelon({"train", write(config)}, "step:  2", SIGTERM);
  EXPECT_EQ(outcome.status, 75) << outcome.err;
  EXPECT_GE(last_step("run"), 2);
}

TEST_F(Signals, InASaveLetItEnd) {
  RunConfig config = this->config("run");
  config.checkpoint.interval = 1;
  config.checkpoint.keep_latest_k = 2;
  const Outcome outcome = interrupt_echelon({"train", write(config)}, "saved", SIGTERM);
  EXPECT_EQ(outcome.status, 75) << outcome.err;
  expect_resumes("run");
}

TEST_F(Signals, BeforeTheFirstStepEndWithoutADamage) {
  const Outcome outcome = interrupt_echelon({"train", write(config("run"))}, "starting", SIGTERM);
  EXPECT_EQ(outcome.status, 75) << outcome.err;
  (void)last_step("run");
  RunConfig again = config("run");
  again.training.steps = last_step("run") + 2;
  EXPECT_THAT(run(again).losses, SizeIs(2));
}

// A run that ends in that same step ends with 0.
TEST_F(Signals, InTheLastStepChangeNothing) {
  RunConfig config = this->config("run");
  config.training.steps = 4;
  ReportLog log;
  const TrainResult result = run(config, log, 4);
  EXPECT_EQ(result.ended_by, RunRequest::none);
  EXPECT_TRUE(std::filesystem::exists(output("run") / "model" / "config.json"));
}

TEST_F(Signals, ForACheckpointSaveOneAndGoOn) {
  RunConfig config = this->config("run");
  RunRequests requests;
  ReportLog log;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 2 || report.step == 5) ++requests.num_saves;
    if (report.step == 7) requests.end = RunRequest::restart;
  };
  const TrainResult result = train(config, {.observer = &log, .requests = &requests});
  EXPECT_EQ(result.ended_by, RunRequest::restart);
  EXPECT_THAT(steps_in(output("run") / "checkpoint"), ::testing::ElementsAre(3, 6, 8));
}

TEST_F(Signals, ToOneProcessOfAJobEndAll) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string folder = "signal" + std::to_string(signal);
    RunConfig config = this->config(folder);
    config.parallelism.data_parallel_shard_degree = 3;
    const std::string path = write(config);
    // The second rank sends itself the signal once the run is under way.
    const std::string script = "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then (sleep 1.5; kill -" +
                               std::to_string(signal) + " $$) & fi; exec " ECHELON_BINARY_DIR "/echelon train " + path;
    const Outcome outcome =
        run_command({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", "sh", "-c", script});
    EXPECT_EQ(outcome.status, 75) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("stopped after step"));
    EXPECT_GT(last_step(folder), 0);
  }
}

// mpirun passes SIGUSR1 on to its processes, of which each gets it; it counts once.
TEST_F(Signals, ToMpirunArePassedOn) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  const std::string path = write(config("run"));
  const std::string script = "mpirun --allow-run-as-root --oversubscribe -n 2 " ECHELON_BINARY_DIR "/echelon train " +
                             path + " & child=$!; sleep 2; kill -USR1 $child; wait $child";
  const Outcome outcome = run_command({"bash", "-c", script});
  EXPECT_EQ(outcome.status, 75) << outcome.err;
  EXPECT_GT(last_step("run"), 0);
}

}  // namespace
}  // namespace echelon::testing
