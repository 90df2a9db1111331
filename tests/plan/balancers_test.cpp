// Which balancer a plan has, where documents or windows make a difference.
#include "plan/balance/balancers.h"

#include "plan/search/search.h"
#include "plan/text/text.h"
#include "predict/documents/document_load.h"
#include "predict/documents/drawn_lengths.h"
#include "train/data/described_documents.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace echelon {
namespace {

using ::testing::HasSubstr;

/// One sequence on more devices than heads, so that the first plan has context parallelism.
PlanRequest request_with(std::vector<std::string> settings) {
  PlanQuestion question;
  question.model = "llama-1m";
  question.machine = "h100";
  question.gpus = 16;
  question.global_batch_size = 1;
  question.seq_len = 32768;
  question.top = 1;
  question.settings = {"--model.max_position_embeddings=32768", "--parallelism.context_parallel_degree=4",
                       "--parallelism.context_parallel_method=ring"};
  for (std::string& each : settings) question.settings.push_back(std::move(each));
  return read_plan_request(question);
}

LoadBalancer balancer_of(const PlanResult& result) {
  return result.plans.front().config.parallelism.context_parallel_load_balancer;
}

TEST(Balancers, OfDocumentsIsTheQuickest) {
  const PlanRequest request = request_with({"--data.reset_attention_mask=true"});
  const DocumentsOf documents = described_documents(request.base, drawn_lengths(2000, 6000, 64 * 32768));
  PlanResult result = find_plans(request);
  const double whole = result.plans.front().outcome.step_seconds;
  choose_balancer(result, request, documents);
  ASSERT_EQ(result.balanced.size(), load_balancers.size());
  const auto quickest = std::ranges::min_element(result.balanced, {}, &BalancedStep::seconds);
  EXPECT_EQ(balancer_of(result), quickest->balancer);
  EXPECT_NE(balancer_of(result), LoadBalancer::headtail);
  EXPECT_LT(quickest->seconds, result.balanced.front().seconds);
  EXPECT_LT(result.balanced.front().seconds, whole);
  EXPECT_THAT(to_text(result, request),
              HasSubstr(fmt::format("{}: {:.4f} s a step, chosen", name_of(quickest->balancer), quickest->seconds)));
}

TEST(Balancers, ThatAreFixedStay) {
  const PlanRequest request =
      request_with({"--data.reset_attention_mask=true", "--parallelism.context_parallel_load_balancer=striped"});
  PlanResult result = find_plans(request);
  choose_balancer(result, request, described_documents(request.base, std::vector<std::int64_t>(64, 1000)));
  ASSERT_EQ(result.balanced.size(), 1U);
  EXPECT_EQ(balancer_of(result), LoadBalancer::striped);
}

TEST(Balancers, OfWholeSequencesAreHeadAndTail) {
  const PlanRequest request = request_with({});
  PlanResult result = find_plans(request);
  choose_balancer(result, request, {});
  EXPECT_TRUE(result.balanced.empty());
  EXPECT_EQ(balancer_of(result), LoadBalancer::headtail);
  EXPECT_THAT(to_text(result, request), HasSubstr("headtail gives every rank as many pairs"));
}

// A window reaches into the chunk before. Of contiguous chunks that is the next rank's, one hop away; a tail's is on
// the rank before, all hops around the ring.
TEST(Balancers, OfWindowsSendFewerRows) {
  PlanRequest request = request_with({});
  request.base.model.family = Family::mistral;
  request.base.model.sliding_window = 512;
  PlanResult result = find_plans(request);
  const Plan& best = result.plans.front();
  const auto load_of = [&](LoadBalancer balancer) {
    RunConfig config = best.config;
    config.parallelism.context_parallel_load_balancer = balancer;
    return load_of_whole_sequences(config);
  };
  constexpr std::int64_t rows = 511;  // that cross a boundary of chunks
  EXPECT_EQ(load_of(LoadBalancer::none).rows.keys, 3 * rows);
  EXPECT_EQ(load_of(LoadBalancer::headtail).rows.keys, (3 + 3 * 3) * rows);
  choose_balancer(result, request, {});
  EXPECT_EQ(result.balanced.size(), 3U) << "the others read documents";
  EXPECT_EQ(balancer_of(result), std::ranges::min_element(result.balanced, {}, &BalancedStep::seconds)->balancer);
}

}  // namespace
}  // namespace echelon
