// PyTorch's own orders (torch_csv/make_fixtures.py) against ours, and files that are no schedule.
#include "schedule/draw/torch_csv.h"

#include "base/error.h"
#include "schedule/generators/catalog.h"
#include "schedule/simulation/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Schedule read_fixture(const std::string& name) {
  const std::string path = std::string(ECHELON_SOURCE_DIR "/tests/schedule/torch_csv/") + name;
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return read_torch_csv(text, name);
}

Schedule ours(std::string_view name, int p, int m, int v) {
  return make_schedule(parse_pipeline_schedule("name", name), {.num_ranks = p, .num_microbatches = m, .num_virtual = v},
                       {});
}

struct Fixture {
  std::string name;
  int p, m, v;
};

class TorchCsv : public testing::TestWithParam<Fixture> {};
INSTANTIATE_TEST_SUITE_P(
    All, TorchCsv,
    testing::Values(Fixture{"GPipe", 3, 5, 1}, Fixture{"Interleaved1F1B", 2, 4, 2}, Fixture{"Interleaved1F1B", 4, 8, 2},
                    Fixture{"Interleaved1F1B", 3, 9, 3}, Fixture{"Interleaved1F1B", 4, 6, 2},
                    Fixture{"InterleavedZeroBubble", 2, 4, 2}, Fixture{"InterleavedZeroBubble", 4, 8, 2},
                    Fixture{"InterleavedZeroBubble", 3, 9, 3}, Fixture{"InterleavedZeroBubble", 4, 6, 2},
                    Fixture{"ZBVZeroBubble", 2, 4, 2}, Fixture{"ZBVZeroBubble", 4, 10, 2},
                    Fixture{"ZBVZeroBubble", 4, 3, 2}, Fixture{"ZBVZeroBubble", 3, 6, 2}, Fixture{"DualPipeV", 2, 4, 2},
                    Fixture{"DualPipeV", 4, 10, 2}, Fixture{"DualPipeV", 3, 7, 2}),
    [](const auto& row) { return fmt::format("{}_{}_{}_{}", row.param.name, row.param.p, row.param.m, row.param.v); });

// Claim (schedules): Interleaved 1F1B, interleaved zero bubble, ZB-V, DualPipeV and GPipe have
//   PyTorch's order of passes.
// Bound: equal to 16 files that PyTorch wrote.
// Tests: TorchCsv
TEST_P(TorchCsv, HasTheOrderOfOurs) {
  const auto& [name, p, m, v] = GetParam();
  const Schedule theirs = read_fixture(fmt::format("{}-{}-{}-{}.csv", name, p, m, v)), own = ours(name, p, m, v);
  EXPECT_EQ(theirs.rank_of_stage, own.rank_of_stage);
  EXPECT_EQ(to_torch_csv(theirs), to_torch_csv(own));
  EXPECT_EQ(to_torch_csv(read_torch_csv(to_torch_csv(own), "own")), to_torch_csv(own));
}

// Theirs goes backward through the microbatches in descending order, which takes as long.
TEST(TorchCsvFiles, LoopedBfsGoesBackInTheOtherOrder) {
  for (const auto& [p, m, v] : {std::tuple{2, 4, 2}, {3, 5, 3}}) {
    const Schedule theirs = read_fixture(fmt::format("LoopedBFS-{}-{}-{}.csv", p, m, v));
    const Timeline a = simulate_schedule(theirs, {}), b = simulate_schedule(ours("LoopedBFS", p, m, v), {});
    EXPECT_NEAR(longest_rank(a, p), longest_rank(b, p), 1e-12);
  }
}

TEST(TorchCsvFiles, AByteOrderMarkIsNoAction) {
  EXPECT_EQ(to_torch_csv(read_torch_csv("\xEF\xBB\xBF"
                                        "0F0,0B0\n",
                                        "a.csv")),
            "0F0,0B0\n");
}

TEST(TorchCsvFiles, MessagesAreLeftOut) {
  EXPECT_EQ(to_torch_csv(read_fixture("ZBVZeroBubble-2-4-2-with-messages.csv")),
            to_torch_csv(read_fixture("ZBVZeroBubble-2-4-2.csv")));
}

// PyTorch 2.15 leaves out the first forward of 1F1B's last rank and adds one behind the last.
TEST(TorchCsvFiles, AnOrderThatMissesAPassIsRefused) {
  EXPECT_THAT([] { (void)read_fixture("1F1B-4-8-1.csv"); },
              ThrowsMessage<Error>(HasSubstr("4 stages and 9 microbatches need 72 passes at least, but there are 64")));
}

TEST(TorchCsvFiles, FilesThatAreNoScheduleAreRefusedByName) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "there is no row"},
      {"\n\n", "there is no row"},
      {",,,\n", "need 2 passes at least, but there are 0"},
      {"0F0,0X0\n", "row 1 has '0X0', which is not an action of a stage on a microbatch (use '0F0')"},
      {"0F0,0B\n", "row 1 has '0B'"},
      {"0F0,F0\n", "row 1 has 'F0'"},
      {"0F0,0B0x\n", "row 1 has '0B0x'"},
      {"0F0,-1B0\n", "row 1 has '-1B0'"},
      {"0F0,0B99999999999999999999\n", "row 1 has '0B99999999999999999999'"},
      {"1048576F1048576\n", "passes at least, but there are 1"},
      {"0F0,(0B0;\n", "row 1 has '(0B0;'"},
      {"0F0,(0B0)SEND_F\n", "row 1 has '(0B0)SEND_F'"},
      {"0F0,0B0\n0F1,0B1\n", "stage 0 is in rows 1 and 2"},
      {"0F0,0B0,0W0\n", "stage 0 has 1 forwards, 1 backwards, 0 of the input and 1 of the weights on microbatch 0"},
      {"0F0,0F0\n", "stage 0 has 2 forwards, 0 backwards"},
      {"0F0,0I0,0I0\n", "stage 0 has 1 forwards, 0 backwards, 2 of the input"},
      {"0F0,2F0,0B0,2B0\n", "3 stages and 1 microbatches need 6 passes at least, but there are 4"},
      {"0B0,0F0\n", "rank 0 waits forever before backward stage 0 microbatch 0"},
      {"0F0,0W0,0I0\n", "rank 0 waits forever before backward_weight stage 0 microbatch 0"},
      {"0F0,0B0\n\n1F0,1B0\n2UNSHARD\n", "row 3 computes nothing"},
      {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "waits forever"},
  };
  for (const auto& [text, sentence] : faults)
    EXPECT_THAT([text = text] { (void)read_torch_csv(text, "a.csv"); },
                ThrowsMessage<Error>(testing::AllOf(HasSubstr("a.csv: "), HasSubstr(sentence))))
        << text;
  EXPECT_NO_THROW((void)read_torch_csv(" 0F0 , ,\"0B0\"\r\n", "a.csv"));
}

}  // namespace
}  // namespace echelon
