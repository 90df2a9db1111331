// A process has the threads that it was asked for and those of MPI; the BLAS library adds none, though it could start
// one per core at each call.
#include "hosts/job.h"

#include <filesystem>
#include <iterator>

namespace echelon {
namespace {

/// Threads of the process of each rank after the second step.
std::vector<std::int64_t> threads_of(const Job& job, const std::function<Outcome(const Job&, const Watch&)>& run,
                                     const std::function<std::vector<int>(int)>& processes) {
  std::vector<std::int64_t> counts;
  const Outcome outcome =
      run(job, {.when = R"("step":2,)", .then = [&] {
                  for (int rank = 0; rank < job.num_processes; ++rank)
                    for (const int process : processes(rank))
                      counts.push_back(std::distance(
                          std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task"), {}));
                }});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return counts;
}

TEST_F(Jobs, HaveTheThreadsThatWereAskedFor) {
  if (const std::string why = obstacle(1); !why.empty()) GTEST_SKIP() << why;
  const auto count = [&](const std::string& num_threads) {
    const Job job = {.num_processes = 2,
                     .keys = {"--json", "--training.steps=40", "--training.seq_len=128", "--model.hidden_size=256",
                              "--model.intermediate_size=512", "--parallelism.data_parallel_shard_degree=2",
                              "--training.num_threads=" + num_threads}};
    return threads_of(
        job, [this](const Job& j, const Watch& watch) { return run(j, watch); },
        [this](int rank) { return processes(rank); });
  };
  const auto one = count("1"), three = count("3");
  ASSERT_EQ(one.size(), 2U);
  ASSERT_EQ(three.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(three[rank], one[rank] + 2);
}

}  // namespace
}  // namespace echelon
