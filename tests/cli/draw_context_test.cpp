// The picture of context parallelism.
#include "cli/program.h"
#include "context/brute_force.h"
#include "pages/context_parallel/context_picture.h"
#include "scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <tuple>

namespace echelon {
namespace {

using testing::HasSubstr;

// Checked by hand: nine tokens are chunks of 3, 2, 2 and 2, of which rank 0 has the first and the last. At hop 0 its
// queries 0, 1, 2 see 1 + 2 + 3 keys and 7, 8 in B 1 + 2; rank 1's 3, 4, 5 see 1 + 2 + 3 and 6 in B itself. At hop 1
// rank 0's 7 and 8 see 6 alone, and rank 1's 3, 4, 5 see 0, 1, 2. 27 pairs in 2 x (9 + 9).
TEST(DrawContext, IsARingThatAPersonHasChecked) {
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

/// Without the first lines, which say who holds which tokens.
std::string after_tokens(const std::string& text) { return text.substr(text.find("\n\n", text.find("\n\n") + 1) + 2); }

// The same tokens and pairs: a head takes as long as the 16 pairs of rank 1.
TEST(DrawContext, IsAGatherThatAPersonHasChecked) {
  const Outcome outcome = run_echelon(
      {"draw", "--context-parallel=2", "--documents=6,3", "--method=all_gather", "--heads=4", "--kv-heads=2"});
  EXPECT_THAT(outcome.out, testing::StartsWith("headtail: 9 tokens in 2 documents on 2 ranks that gather keys, 4 query "
                                               "and 2 kv heads\n"));
  EXPECT_EQ(after_tokens(outcome.out),
            R"(what is gathered for each of 2 kv heads: 5 rows of each rank's keys and values, of which so many are seen
to rank 0    of rank 1, 1 seen
to rank 1    of rank 0, 3 seen

pairs (query, key) of a head with the keys of each rank; a kv head ends with its slowest rank
              rank 0    rank 1        all   waits
rank 0             9         2         11   31.2%
rank 1             9         7         16    0.0%

largest rank over the mean: 1.185 (contiguous chunks: 1.111); in lock step 84.4% of the ranks' time is attention
)");
}

// Three ranks of 3 rows have two of six query heads each. Two kv heads cannot be shared by three ranks, one can. All
// ranks see 6 x 7 / 2 + 3 x 4 / 2 pairs.
TEST(DrawContext, IsAnExchangeOfHeadsThatAPersonHasChecked) {
  const Outcome outcome =
      run_echelon({"draw", "--context-parallel=3", "--documents=6,3", "--method=a2a", "--heads=6", "--kv-heads=1"});
  EXPECT_EQ(after_tokens(outcome.out),
            R"(heads after the exchange, and rows of a head that a rank sends to each other rank of its group
          group            heads  kv heads         q         k         v       out
rank 0    ranks 0-2          0-1         0         6         3         3         6
rank 1    ranks 0-2          2-3         0         6         3         3         6
rank 2    ranks 0-2          4-5         0         6         3         3         6

pairs (query, key) of a head; every rank has all tokens of its heads, and waits for none
                  all   waits
rank 0             27    0.0%
rank 1             27    0.0%
rank 2             27    0.0%

largest rank over the mean: 1.000 (contiguous chunks: 1.000); in lock step 100.0% of the ranks' time is attention
)");
}

// Eight chunks, the first of two tokens: ranks 0 and 1 have tokens 0, 1, 2, 7, 8, and 2 and 3 those between, as the two
// ranks of the ring above. A block has 2 x 3 rows.
TEST(DrawContext, IsARingOfGroupsThatAPersonHasChecked) {
  const Outcome outcome = run_echelon({"draw", "--context-parallel=4", "--documents=6,3", "--method=a2a+p2p",
                                       "--ulysses-degree=2", "--heads=4", "--kv-heads=2"});
  EXPECT_EQ(after_tokens(outcome.out),
            R"(heads after the exchange, and rows of a head that a rank sends to each other rank of its group
          group            heads  kv heads         q         k         v       out
rank 0    ranks 0-1          0-1         0         6         3         3         6
rank 1    ranks 0-1          2-3         1         6         3         3         6
rank 2    ranks 2-3          0-1         0         6         3         3         6
rank 3    ranks 2-3          2-3         1         6         3         3         6

what is sent for each hop: 6 rows of a group's keys and values (a rank's heads), of which so many are seen there or later
to ranks 0-1  hop 1: of ranks 2-3, 1 seen
to ranks 2-3  hop 1: of ranks 0-1, 3 seen

pairs (query, key) of a head at each hop; a hop ends with its slowest rank
               hop 0     hop 1        all   waits
rank 0             9         2         11   38.9%
rank 1             9         2         11   38.9%
rank 2             7         9         16   11.1%
rank 3             7         9         16   11.1%

largest rank over the mean: 1.185 (contiguous chunks: 1.111); in lock step 75.0% of the ranks' time is attention
)");
}

ContextPicture picture_of(const TokenSplit& split, const DocumentOffsets& documents, const KeyExchange& exchange = {}) {
  return context_picture(split, documents, exchange, drawn_heads(12, 12, split.cp, exchange));
}

// A contiguous causal ring in lock step reaches cp / (2 cp - 1); with head and tail all ranks compute as much.
TEST(DrawContext, ReachesInLockStepWhatTheClosedFormSays) {
  const std::int64_t T = 1 << 14;
  for (const int cp : {2, 4, 8}) {
    const DocumentOffsets whole = {0, static_cast<std::int32_t>(T)};
    const ContextPicture none = picture_of({.seq_len = T, .cp = cp, .balancer = LoadBalancer::none}, whole);
    EXPECT_NEAR(none.lock_step_efficiency(), cp / (2.0 * cp - 1), 1e-3);
    EXPECT_NEAR(none.imbalance, (2.0 * cp - 1) / cp, 1e-3);
    const ContextPicture even = picture_of({.seq_len = T, .cp = cp}, whole);
    EXPECT_NEAR(even.lock_step_efficiency(), 1, 1e-3);
    EXPECT_NEAR(even.imbalance, 1, 1e-3);
    EXPECT_DOUBLE_EQ(even.contiguous_imbalance, none.imbalance);
  }
}

TEST(DrawContext, CountsEveryPairAndTokenOnce) {
  const DocumentOffsets documents = {0, 50, 50, 51, 200};
  for (const LoadBalancer balancer : load_balancers) {
    const ContextPicture picture = picture_of({.seq_len = 200, .cp = 3, .balancer = balancer}, documents);
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

/// Positions of the ranks of a place.
std::vector<std::int32_t> held_by(const ContextPicture& picture, int place) {
  std::vector<std::int32_t> positions;
  for (int rank = 0; rank < picture.split.cp; ++rank)
    if (picture.place_of(rank) == place)
      positions.insert(positions.end(), picture.lists.positions(rank).begin(), picture.lists.positions(rank).end());
  return positions;
}

// Every pair of the causal mask by itself, and every row of keys that somebody who still gets it sees.
TEST(DrawContext, CountsWhatTheMaskHas) {
  const auto seed_of = [](int cp, std::size_t i) { return static_cast<unsigned>(cp) * 7 + static_cast<unsigned>(i); };
  using enum ContextMethod;
  const std::tuple<ContextMethod, int, int> layouts[] = {
      {ring, 3, 1},         {all_gather, 3, 1},   {all_gather, 4, 1},   {ulysses, 4, 4},
      {ulysses_ring, 4, 2}, {ulysses_ring, 6, 2}, {ulysses_ring, 6, 3}, {ring, 1, 1}};
  for (const auto& [method, cp, u] : layouts)
    for (std::size_t i = 0; i < load_balancers.size(); ++i) {
      const TokenSplit split = {.seq_len = 41, .cp = cp, .balancer = load_balancers[i], .window = i == 2 ? 9 : 0};
      const DocumentOffsets documents = drawn_documents(41, seed_of(cp, i));
      const Visibility visibility = {documents, split.window};
      const ContextPicture picture = picture_of(split, documents, {.method = method, .head_ranks = u});
      const int n = cp / u;
      ASSERT_EQ(picture.num_places(), n);
      std::int64_t largest = 0, all = 0;
      for (int place = 0; place < n; ++place) {
        std::int64_t of_place = 0;
        for (int distance = 0; distance < n; ++distance) {
          const std::vector<std::int32_t> keys = held_by(picture, (place + n - distance) % n);
          std::int64_t pairs = 0;
          std::set<std::int32_t> seen;
          for (int later = distance; later < (method == all_gather ? distance + 1 : n); ++later)
            for (const std::int32_t query : held_by(picture, (place + later - distance) % n))
              for (const std::int32_t key : keys) {
                if (!sees(query, key, visibility)) continue;
                pairs += later == distance ? 1 : 0;
                seen.insert(key);
              }
          const auto p = static_cast<std::size_t>(place), d = static_cast<std::size_t>(distance);
          EXPECT_EQ(picture.pairs[p][d], pairs);
          EXPECT_EQ(picture.seen_rows[p][d], distance == 0 ? 0 : static_cast<std::int64_t>(seen.size()));
          of_place += pairs;
        }
        EXPECT_EQ(picture.num_pairs(place * u), of_place);
        largest = std::max(largest, of_place);
        all += of_place;
      }
      EXPECT_DOUBLE_EQ(picture.imbalance, static_cast<double>(largest) * n / static_cast<double>(all));
    }
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DrawContext, IsAnSvgAndAPage) {
  const std::string page = scratch_folder() + "ring.html";
  const Outcome outcome = run_echelon(
      {"draw", "--context-parallel=4", "--balancer=packed", "--documents=90,20,0,7", "--format=svg", "--html", page});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::StartsWith("<svg"));
  EXPECT_THAT(outcome.out, HasSubstr("document 3, tokens 110 to 116"));
  EXPECT_THAT(outcome.out, HasSubstr("hop 3: keys of rank"));
  EXPECT_THAT(file_text(page), HasSubstr("largest rank over the mean"));
}

TEST(DrawContext, EveryMethodIsAnSvgAndAPage) {
  const std::string page = scratch_folder() + "method.html";
  const auto drawn = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"draw", "--context-parallel=4", "--documents=6,3", "--heads=8", "--kv-heads=2",
                                 "--format=svg", "--html", page});
    return run_echelon(flags).out;
  };
  const auto count = [](const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  // In print nothing is under a pointer: each of four ranks sees some of the rows of three hops.
  const std::string ring = drawn({"--method=ring"});
  EXPECT_EQ(count(ring, " of 3 rows</text>"), 12U);
  EXPECT_THAT(ring, HasSubstr("how many of the rows sent here are seen"));
  EXPECT_EQ(count(run_echelon({"draw", "--context-parallel=64", "--seq-len=512", "--format=svg"}).out, " rows</text>"),
            0U);  // hops too narrow for these words
  const std::string gathered = drawn({"--method=all_gather"});
  EXPECT_EQ(count(gathered, " of 9 rows</text>"), 8U);  // two kv heads
  EXPECT_EQ(count(gathered, "kv head 1: "), 4U);
  EXPECT_THAT(gathered, HasSubstr("of 9 rows gathered are seen"));  // three ranks of 3
  EXPECT_THAT(file_text(page), HasSubstr("What is gathered for each of 2 kv heads: 3 rows"));
  EXPECT_THAT(file_text(page), HasSubstr("of rank 3"));
  const std::string exchanged = drawn({"--method=ulysses"});
  EXPECT_THAT(exchanged, HasSubstr("heads 6-7, kv heads 1: to each other rank of ranks 0-3 go 6 rows of a head of q, 3 "
                                   "of k, 3 of v, 6 of out"));
  EXPECT_EQ(count(exchanged, "hop 0: keys of ranks 0-3, 27 pairs"), 4U);
  EXPECT_THAT(file_text(page), HasSubstr("heads after the exchange"));
  EXPECT_THAT(file_text(page), testing::Not(HasSubstr("Context parallelism: what is sent")));
  const std::string both = drawn({"--method=ulysses_ring", "--ulysses-degree=2"});
  EXPECT_EQ(count(both, "hop 1: keys of ranks 0-1, 9 pairs, 3 of 6 rows sent here are seen"), 2U);
  EXPECT_THAT(file_text(page), HasSubstr("heads after the exchange"));
  EXPECT_THAT(file_text(page), HasSubstr("6 rows of a group&#39;s keys and values"));
  EXPECT_THAT(file_text(page), HasSubstr("title=\"waits: 7\""));  // of rank 0 at hop 1
}

// Rank 0 has none of the first document, and waits are no pairs.
TEST(DrawContext, APageHasColumnsInOrderAndSumsOfPairsAlone) {
  const std::string page = scratch_folder() + "order.html";
  ASSERT_EQ(
      run_echelon({"draw", "--context-parallel=2", "--documents=2,40", "--balancer=packed", "--html", page}).status, 0);
  const ContextPicture picture = picture_of({.seq_len = 42, .cp = 2, .balancer = LoadBalancer::packed}, {0, 2, 42}, {});
  const std::string text = file_text(page);
  const auto heads = [](const std::string& names) { return "<thead><tr><th></th>" + names + "</tr></thead>"; };
  const auto head = [](const std::string& name) { return "<th class=\"number\">" + name + "</th>"; };
  EXPECT_THAT(text, HasSubstr(heads(head("document 0") + head("document 1") + head("sum"))));
  EXPECT_THAT(text, HasSubstr(heads(head("hop 0") + head("hop 1") + head("sum") + head("waits"))));
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(text, HasSubstr(fmt::format("<span class=\"total\">{}</span>", picture.num_pairs(rank))));
}

// Of 256 ranks and hops a page has intervals, and its size is bounded.
TEST(DrawContext, OfManyRanksIsASmallPage) {
  const std::string page = scratch_folder() + "many.html";
  const Outcome outcome =
      run_echelon({"draw", "--context-parallel=256", "--seq-len=4096", "--balancer=striped", "--html", page});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(file_text(page), HasSubstr("hops 240-255"));
  EXPECT_LT(file_text(page).size(), 500'000U);
}

TEST(DrawContext, ReadsAWholeNumberAsAConfigDoes) {
  EXPECT_EQ(run_echelon({"draw", "--context-parallel=2", "--seq-len=1e2"}).out,
            run_echelon({"draw", "--context-parallel=2", "--seq-len=100"}).out);
}

TEST(DrawContext, RefusesBadInputInOneSentence) {
  const std::pair<std::vector<std::string>, std::string> rows[] = {
      {{"--context-parallel=9", "--seq-len=8"}, "--context-parallel=9 is more than the 8 tokens"},
      {{"--context-parallel=2", "--balancer=headtal"}, "did you mean headtail?"},
      {{"--context-parallel=2", "--documents=9,,7"}, "--documents=9,,7 is not a list of lengths"},
      {{"--context-parallel=2", "--documents=-1"}, "--documents=-1 is not a list of lengths"},
      {{"--context-parallel=2", "--documents=99999999999"}, "(use 9,7)"},
      {{"--context-parallel=1", "--documents=0"}, "--documents=0 has no tokens"},
      {{"--context-parallel=2", "--format=trace"}, "--format=trace is of a schedule"},
      {{"--context-parallel=2", "--stages=4"}, "--context-parallel"},
      {{"--context-parallel=2", "--backward=3"}, "--backward=3 excludes --context-parallel=2"},
      {{"--context-parallel=2", "--memory-limit=3"}, "--memory-limit=3 excludes --context-parallel=2"},
      {{"--context-parallel=2", "--seq-len=32", "--documents=9,7"},
       "--seq-len=32 excludes --documents=9,7; omit one of them"},
      {{"--context-parallel=256", "--seq-len=16777216"}, "are more than 536870912 (use --seq-len=2097152)"},
      {{"--context-parallel=2", "--seq-len=1.5"}, "--seq-len=1.5 is not an integer"},
      {{"--context-parallel=0"}, "--context-parallel"},
      {{"--seq-len=8"}, "--seq-len requires --context-parallel"},
      {{"--context-parallel=4", "--method=ulises"},
       "--method = 'ulises' is not one of ring, all_gather, ulysses, "
       "ulysses_ring; did you mean ulysses?"},
      {{"--context-parallel=1", "--method=a2a"},
       "--method = 'ulysses' does not apply to whole sequences: --context-parallel = 1 (use ring)"},
      {{"--context-parallel=4", "--ulysses-degree=2"},
       "--ulysses-degree = 2 does not apply to --method = 'ring' (use 0)"},
      {{"--context-parallel=9", "--method=ulysses_ring"},
       "--ulysses-degree = 0 does not say how many ranks exchange heads in --method = 'ulysses_ring' (use 3)"},
      {{"--context-parallel=12", "--method=ulysses_ring", "--ulysses-degree=5"},
       "--ulysses-degree = 5 does not divide --context-parallel = 12 (use 4)"},
      {{"--context-parallel=6", "--method=ulysses"},
       "--context-parallel = 6 ranks cannot exchange the 8 query and 8 kv "
       "heads of a tensor-parallel rank"},
      {{"--context-parallel=6", "--method=ulysses_ring", "--ulysses-degree=3"}, "--ulysses-degree = 3 ranks cannot"},
      {{"--context-parallel=6", "--method=ulysses_ring", "--ulysses-degree=3"}, "(use 2)"},
      {{"--context-parallel=4", "--heads=8", "--kv-heads=3"}, "--kv-heads=3 does not divide --heads=8 (use 2)"},
      {{"--context-parallel=4", "--heads=4", "--kv-heads=8"}, "--kv-heads=8 does not divide --heads=4 (use 4)"},
      {{"--kv-heads=8"}, "--kv-heads requires --context-parallel"}};
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
