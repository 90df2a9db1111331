// The picture of a layer's exchange of experts.
#include "cli/program.h"
#include "pages/exchange/exchange_picture.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

ExchangePicture picture_of(double bound, double shared_ms, const std::string& load = "balanced") {
  return exchange_picture(
      {.num_ranks = 2, .dispatch_bound = bound, .load = load, .experts_ms = 4, .shared_ms = shared_ms});
}

constexpr double weights = 1.0 / 512;   // of the bytes of a row, its weight's
constexpr double gate = 1.0 / 3 / 512;  // of the shared expert's matmuls, its gate's

// In each pass half of the shared expert's matmuls are computed until rows come, and half until they are back.
TEST(DrawExchange, HidesWhatTheSharedExpertTakes) {
  const ExchangePicture picture = picture_of(1, 1);
  EXPECT_EQ(picture.num_rounds, 1);
  ASSERT_EQ(picture.passes.size(), 2U);
  const auto& [name, computed, exchanged, end] = picture.passes[0];
  EXPECT_EQ(name, "forward");
  ASSERT_EQ(exchanged.size(), 2U);
  EXPECT_EQ(exchanged[0].name, "dispatch");
  EXPECT_NEAR(exchanged[0].end, 1 + weights, 1e-9);
  EXPECT_EQ(exchanged[1].name, "combine");
  EXPECT_NEAR(exchanged[1].start, 5 + weights, 1e-9);
  EXPECT_NEAR(end, 6 + weights, 1e-9);
  ASSERT_EQ(computed.size(), 3U);
  EXPECT_EQ(computed[0].name, "shared");
  EXPECT_NEAR(computed[0].end, 1.0 / 2 + gate, 1e-9);
  EXPECT_EQ(computed[1].name, "experts");
  EXPECT_NEAR(computed[2].end - computed[2].start, 1.0 / 2, 1e-9);
  EXPECT_NEAR(picture.passes[0].exposed_ms(), 1 + weights - gate, 1e-9);
  EXPECT_EQ(picture.passes[1].name, "backward");
  EXPECT_NEAR(picture.passes[1].end, 1 + 8 + 1 + 2 * gate, 1e-9);  // rows are back before
  EXPECT_NEAR(picture.passes[1].exchange_ms(), 2 + weights, 1e-9);
}

// Weight gradients alone are computed until rows of dx are back.
TEST(DrawExchange, HidesWhatGoesBackInBackwardWithoutOne) {
  for (const ExchangePicture::Pass& pass : picture_of(1, 0).passes) {
    EXPECT_NEAR(pass.exposed_ms(), pass.name == "forward" ? 2 + weights : 1, 1e-9) << pass.name;
    EXPECT_NEAR(pass.exchange_ms(), 2 + weights, 1e-9) << pass.name;
  }
}

// Of two rounds, the first one's rows come during the last matmul of the second, which is computed first, and whose
// rows go back during the first one's first matmuls. What is exposed is half of the way there and of the way back.
TEST(DrawExchange, RoundsOverlapInForward) {
  const ExchangePicture picture =
      exchange_picture({.num_ranks = 2, .dispatch_bound = 0.5, .experts_ms = 12, .shared_ms = 0, .exchange_ms = 1});
  EXPECT_EQ(picture.num_rounds, 2);
  const ExchangePicture::Pass& forward = picture.passes[0];
  ASSERT_EQ(forward.exchanged.size(), 4U);
  const ExchangePicture::Bar &there = forward.exchanged.front(), &back = forward.exchanged.back();
  EXPECT_EQ(there.start, 0);
  EXPECT_NEAR(forward.exposed_ms(), there.end + back.end - back.start, 1e-9);
  EXPECT_LT(forward.exposed_ms(), 0.6 * forward.exchange_ms());
  EXPECT_NEAR(forward.end, 12 + forward.exposed_ms(), 1e-9);
}

TEST(DrawExchange, FollowsTheLoads) {
  EXPECT_GT(picture_of(1.2, 1, "zipf:1.2").num_rounds, 1);
  EXPECT_GT(picture_of(8, 1, "zipf:1.2").passes[0].end, picture_of(8, 1).passes[0].end);
}

// Checked by hand: 80 columns are the backward pass of 1 + 8 + 1 ms. Rows go back from 1 + 8 * 4/6 = 6.3 ms on, at
// column 51, when four of six matmuls are done; gradients of wgate and wup are left.
TEST(DrawExchange, IsTextThatAPersonHasChecked) {
  const Outcome outcome = run_echelon({"draw", "--expert-parallel=2", "--dispatch-bound=1", "--columns=80"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            R"(a layer with experts on 2 ranks, balanced loads, 1 round; the most loaded rank, until its rows are back

forward: 6.002 ms; rows travel for 2.002 ms, of which 1.001 ms are exposed
compute   sha     experts======================== sha
exchange  dispatc                                 combine

backward: 10 ms; rows travel for 2.002 ms, of which 0 ms are exposed
compute   shared= experts======================================================== shared=
exchange  dispatc                                            combine
)");
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DrawExchange, IsAnSvgATraceAndAPage) {
  const std::string page = scratch_folder() + "exchange.html";
  const Outcome svg = run_echelon({"draw", "--expert-parallel=4", "--format=svg", "--html", page});
  EXPECT_EQ(svg.status, 0) << svg.err;
  EXPECT_THAT(svg.out, testing::StartsWith("<svg"));
  EXPECT_THAT(svg.out, HasSubstr("forward, exchange of experts"));
  EXPECT_THAT(svg.out, HasSubstr("<title>dispatch: "));
  EXPECT_THAT(text_of_file(page), HasSubstr("combine</li>"));
  const Outcome trace = run_echelon({"draw", "--expert-parallel=4", "--format=trace"});
  EXPECT_EQ(trace.status, 0) << trace.err;
  int num_compute = 0, num_exchange = 0;
  const nlohmann::json read = nlohmann::json::parse(trace.out);
  for (const auto& event : read["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++(event["tid"] == 0 ? num_compute : num_exchange);
    EXPECT_EQ(event["cat"], event["tid"] == 0 ? "compute" : "exchange");
  }
  EXPECT_GT(num_compute, 4);
  EXPECT_EQ(num_exchange, 4);  // there and back, in two passes
}

TEST(DrawExchange, RefusesBadInputInOneSentence) {
  const std::pair<std::vector<std::string>, std::string> rows[] = {
      {{"--expert-parallel=1"}, "--expert-parallel"},
      {{"--expert-parallel=2", "--stages=4"}, "--expert-parallel"},
      {{"--expert-parallel=2", "--context-parallel=2"}, "--context-parallel"},
      {{"--expert-parallel=2", "--dispatch-bound=0"}, "--dispatch-bound"},
      {{"--expert-parallel=2", "--expert-load=zip:1"}, "--expert-load"},
      {{"--expert-parallel=2", "--json"}, "--json is of a schedule"},
      {{"--shared-ms=1"}, "--shared-ms requires --expert-parallel"}};
  for (const auto& [flags, sentence] : rows) {
    std::vector<std::string> arguments = {"draw"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 2) << sentence;
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace echelon
