// Processes that share a sequence: one that dies or stalls inside attention ends the job with its name, the layer and
// the hop or head.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace echelon {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// tests/engine/context_failures with these arguments.
class FailingJob {
 public:
  FailingJob(int num_processes, const std::string& method, const std::string& way)
      : output_(popen(fmt::format("mpirun --allow-run-as-root --oversubscribe -n {} {}/context_failures {} {} 2>&1",
                                  num_processes, ECHELON_BINARY_DIR, method, way)
                          .c_str(),
                      "r")) {}
  /// Its output, when it has ended.
  [[nodiscard]] std::string wait() {
    std::string output;
    for (int letter = std::fgetc(output_); letter != EOF; letter = std::fgetc(output_))
      output += static_cast<char>(letter);
    const int status = pclose(output_);
    return fmt::format("{}status {}", output, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }

 private:
  std::FILE* output_;
};

struct Row {
  int num_processes = 0;
  std::string method;
  std::string part, waits;  // of the layer: where rank 1 fails, in its first attention; regex: where others wait
};

const std::vector<Row>& rows() {
  static const std::vector<Row> rows = {
      {3, "ring", ", hop 0 of the ring", "hop [12] of the ring"},
      {3, "all_gather", ", kv head 0", "kv head 2"},
      {2, "ulysses", "", "exchange of heads for tokens"},
      {4, "ulysses_ring", ", hop 0 of the ring", "exchange of heads for tokens|hop 0 of the ring"}};
  return rows;
}

/// Runs all at once, since a stall takes as long as its timeout; expect(row, way, output).
template <class Expect>
void for_each_job(const std::vector<std::string>& ways, Expect expect) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/context_failures")) GTEST_SKIP() << "built without MPI";
  std::vector<FailingJob> jobs;
  for (const std::string& way : ways)
    for (const Row& row : rows()) jobs.emplace_back(row.num_processes, row.method, way);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Row& row = rows()[i % rows().size()];
    const std::string &way = ways[i / rows().size()], output = jobs[i].wait();
    SCOPED_TRACE(fmt::format("{} {}:\n{}", row.method, way, output));
    expect(row, way, output);
    EXPECT_THAT(output, HasSubstr("status 1"));
  }
}

TEST(ProcessFailure, ARankThatDiesIsNamedWithLayerAndPart) {
  for_each_job({"dies"}, [](const Row& row, const std::string&, const std::string& output) {
    EXPECT_THAT(output, HasSubstr("echelon: rank 1: forward stage 0 microbatch 0, model.layers.1.self_attn" + row.part +
                                  ": the device is gone\n"));
    EXPECT_EQ(output.find("echelon: "), output.rfind("echelon: "));
  });
}

// One that sleeps has a thread that answers; one that is stopped has none.
TEST(ProcessFailure, ARankThatStallsIsNamedWithLayerAndPart) {
  for_each_job({"sleeps", "stops"}, [](const Row& row, const std::string& way, const std::string& output) {
    EXPECT_THAT(output, ContainsRegex("echelon: rank [023]: [^,]*, model.layers.1.self_attn, (" + row.waits +
                                      "): group [^:]*: rank [023] waited 4 s \\(comm.timeout_seconds\\) for "));
    EXPECT_THAT(output, HasSubstr(way == "stops" ? "; rank 1 does not answer"
                                                 : "; rank 1 computes in model.layers.1.self_attn" + row.part + "\n"));
    EXPECT_THAT(output, Not(AnyOf(ContainsRegex("rank [023] does not answer"), HasSubstr("cannot read the memory"))));
  });
}

}  // namespace
}  // namespace echelon
