// The picture of a ring of context parallelism.
#include "cli/program.h"
#include "pages/ring/ring_picture.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace echelon {
namespace {

using testing::HasSubstr;

// Checked by hand: nine tokens are chunks of 3, 2, 2 and 2, of which rank 0 has the first and the last. At hop 0 its
// queries 0, 1, 2 see 1 + 2 + 3 keys and 7, 8 in B 1 + 2; rank 1's 3, 4, 5 see 1 + 2 + 3 and 6 in B itself. At hop 1
// rank 0's 7 and 8 see 6 alone, and rank 1's 3, 4, 5 see 0, 1, 2. 27 pairs in 2 x (9 + 9).
TEST(DrawRing, IsWhatAPersonHasChecked) {
  const Outcome outcome = run_echelon({"draw", "--context-parallel=2", "--documents=6,3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, R"(headtail: 9 tokens in 2 documents on 2 ranks of a ring

who holds which tokens, and how many of each document
                         A      B
rank 0    AAA....BB      3      2
rank 1    ...AAAB..      3      1

what is sent for each hop: 5 rows of a rank's keys and values, of which so many are seen there or later
to rank 0    hop 1: of rank 1, 1 seen
to rank 1    hop 1: of rank 0, 3 seen

pairs (query, key) of a head at each hop; a hop ends with its slowest rank
               hop 0     hop 1        all   waits
rank 0             9         2         11   38.9%
rank 1             7         9         16   11.1%

largest rank over the mean: 1.185 (contiguous chunks: 1.111); in lock step 75.0% of the ranks' time is attention
)");
}

// A contiguous causal ring in lock step reaches cp / (2 cp - 1); with head and tail all ranks compute as much.
TEST(DrawRing, ReachesInLockStepWhatTheClosedFormSays) {
  const std::int64_t T = 1 << 14;
  for (const int cp : {2, 4, 8}) {
    const DocumentOffsets whole = {0, static_cast<std::int32_t>(T)};
    const RingPicture none = ring_picture({.seq_len = T, .cp = cp, .balancer = LoadBalancer::none}, whole);
    EXPECT_NEAR(none.lock_step_efficiency(), cp / (2.0 * cp - 1), 1e-3);
    EXPECT_NEAR(none.imbalance, (2.0 * cp - 1) / cp, 1e-3);
    const RingPicture even = ring_picture({.seq_len = T, .cp = cp}, whole);
    EXPECT_NEAR(even.lock_step_efficiency(), 1, 1e-3);
    EXPECT_NEAR(even.imbalance, 1, 1e-3);
    EXPECT_DOUBLE_EQ(even.contiguous_imbalance, none.imbalance);
  }
}

TEST(DrawRing, CountsEveryPairAndTokenOnce) {
  const DocumentOffsets documents = {0, 50, 50, 51, 200};
  for (const LoadBalancer balancer : load_balancers) {
    const RingPicture picture = ring_picture({.seq_len = 200, .cp = 3, .balancer = balancer}, documents);
    std::int64_t pairs = 0;
    for (int rank = 0; rank < 3; ++rank) pairs += picture.num_pairs(rank);
    EXPECT_EQ(pairs, 50 * 51 / 2 + 1 + 149 * 150 / 2);
    for (std::size_t i = 0; i + 1 < documents.size(); ++i) {
      std::int64_t tokens = 0;
      for (const std::vector<std::int64_t>& of_rank : picture.document_tokens) tokens += of_rank[i];
      EXPECT_EQ(tokens, documents[i + 1] - documents[i]);
    }
  }
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DrawRing, IsAnSvgAndAPage) {
  const std::string page = scratch_folder() + "ring.html";
  const Outcome outcome = run_echelon(
      {"draw", "--context-parallel=4", "--balancer=packed", "--documents=90,20,0,7", "--format=svg", "--html", page});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::StartsWith("<svg"));
  EXPECT_THAT(outcome.out, HasSubstr("document 3, tokens 110 to 116"));
  EXPECT_THAT(outcome.out, HasSubstr("hop 3: keys of rank"));
  EXPECT_THAT(file_text(page), HasSubstr("largest rank over the mean"));
}

TEST(DrawRing, RefusesBadInputInOneSentence) {
  const std::pair<std::vector<std::string>, std::string> rows[] = {
      {{"--context-parallel=9", "--seq-len=8"}, "--context-parallel=9 is more than the 8 tokens"},
      {{"--context-parallel=2", "--balancer=headtal"}, "did you mean headtail?"},
      {{"--context-parallel=2", "--documents=9,,7"}, "--documents=9,,7 is not a list of lengths"},
      {{"--context-parallel=2", "--documents=-1"}, "--documents=-1 is not a list of lengths"},
      {{"--context-parallel=2", "--documents=99999999999"}, "(use 9,7)"},
      {{"--context-parallel=1", "--documents=0"}, "--documents=0 has no tokens"},
      {{"--context-parallel=2", "--format=trace"}, "--format=trace is of a schedule"},
      {{"--context-parallel=2", "--stages=4"}, "--context-parallel"},
      {{"--context-parallel=0"}, "--context-parallel"},
      {{"--seq-len=8"}, "--seq-len requires --context-parallel"}};
  for (const auto& [flags, sentence] : rows) {
    std::vector<std::string> arguments = {"draw"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace echelon
