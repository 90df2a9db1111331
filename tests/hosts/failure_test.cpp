// A process that is killed, hangs or throws ends the whole job, soon, with an error that names its rank.
#include "hosts/job.h"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr double timeout_seconds = 4;
constexpr double margin_seconds = 20;  // for a machine with other work

struct Hosts {
  int num_hosts = 1;
  int num_processes = 2;
};

class FailingJobs : public Jobs, public testing::WithParamInterface<Hosts> {
 protected:
  void SetUp() override {
    if (const std::string why = obstacle(GetParam().num_hosts); !why.empty()) GTEST_SKIP() << why;
    Jobs::SetUp();
    job_ = {.num_processes = GetParam().num_processes,
            .num_hosts = GetParam().num_hosts,
            .keys = {"--json", "--training.steps=1000000", "--comm.timeout_seconds=" + std::to_string(timeout_seconds),
                     "--parallelism.data_parallel_shard_degree=" + std::to_string(GetParam().num_processes)}};
  }

  [[nodiscard]] int last_rank() const { return GetParam().num_processes - 1; }

  /// Sends a signal to the last rank's process after the second step, and expects the job to end in time.
  [[nodiscard]] Outcome run_with_signal(int signal) const {
    Clock::time_point sent;
    const Outcome outcome = run(job_, {.when = R"("step":2,)", .then = [&] {
                                         const std::vector<int> victims = processes(last_rank());
                                         ASSERT_EQ(victims.size(), 1U);
                                         kill(victims[0], signal);
                                         sent = Clock::now();
                                       }});
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - sent).count(), timeout_seconds + margin_seconds);
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 124) << "ended by the test's own time limit";
    return outcome;
  }

  Job job_;
};

// Claim (processes): A process that is killed, hangs, throws, or loses its host ends the job with
//   a message that names it.
// Bound: within `comm.timeout_seconds` and the launcher's own delay.
// Tests: FailingJobs
TEST_P(FailingJobs, EndWhenAProcessIsKilled) {
  const Outcome outcome = run_with_signal(SIGKILL);
  EXPECT_THAT(outcome.err, HasSubstr("rank " + std::to_string(last_rank())));
}

TEST_P(FailingJobs, EndWhenAProcessHangs) {
  const Outcome outcome = run_with_signal(SIGSTOP);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("(comm.timeout_seconds)"));
  EXPECT_THAT(outcome.err, HasSubstr("rank " + std::to_string(last_rank()) + " does not answer"));
}

// While the job runs, every token after the first half becomes one that no vocabulary has. Which rank reads one first
// depends on the order of the data.
TEST_P(FailingJobs, EndWhenAProcessThrows) {
  const Outcome outcome = run(job_, {.when = R"("step":2,)", .then = [&] {
                                       const std::string tokens = folder_ + "/corpus/train.bin";
                                       const auto size =
                                           static_cast<std::streamoff>(std::filesystem::file_size(tokens));
                                       std::fstream file(tokens, std::ios::in | std::ios::out | std::ios::binary);
                                       file.seekp(size / 4 * 2);
                                       file << std::string(static_cast<std::size_t>(size - size / 4 * 2), '\xff');
                                     }});
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "ended by the test's own time limit";
  EXPECT_THAT(outcome.err, testing::ContainsRegex("echelon: rank [0-9]+: .*65535"));
}

// What is left when a machine loses its power: its daemon is gone with the processes.
TEST_P(FailingJobs, EndWhenAHostIsLost) {
  if (GetParam().num_hosts == 1) return;
  const auto host_of = [](int process) {
    return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/ns/net").string();
  };
  const Outcome outcome = run(job_, {.when = R"("step":2,)", .then = [&] {
                                       const std::string lost = host_of(processes(last_rank()).at(0));
                                       for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
                                         std::error_code error;
                                         const auto host =
                                             std::filesystem::read_symlink(entry.path() / "ns/net", error);
                                         if (!error && host == lost) kill(std::stoi(entry.path().filename()), SIGKILL);
                                       }
                                     }});
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "ended by the test's own time limit";
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("host2"), HasSubstr("daemon")));  // the launcher says it, not always by name
}

// The others have met it already, to know which hosts have which ranks.
TEST_P(FailingJobs, EndWhenAProcessFailsBeforeItsRun) {
  const std::string ranks = std::to_string(GetParam().num_processes);
  job_.keys = {"--model.preset=mixtral-30m", "--model.hidden_size=64", "--model.moe_intermediate_size=32",
               "--parallelism.data_parallel_shard_degree=" + ranks, "--parallelism.expert_parallel_degree=" + ranks};
  job_.key_of_last = "--data.path=missing";
  const Outcome outcome = run(job_);
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "ended by the test's own time limit";
  EXPECT_THAT(outcome.err, HasSubstr("rank " + std::to_string(last_rank()) + ": "));
}

INSTANTIATE_TEST_SUITE_P(Processes, FailingJobs, testing::Values(Hosts{1, 2}, Hosts{1, 4}, Hosts{2, 2}, Hosts{2, 4}),
                         [](const auto& given) {
                           return std::to_string(given.param.num_hosts) + "Hosts" +
                                  std::to_string(given.param.num_processes);
                         });

}  // namespace
}  // namespace echelon
