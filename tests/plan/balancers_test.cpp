// Which balancer a plan has, where documents or windows make a difference.
#include "plan/balance/balancers.h"

#include "plan/exhaustive.h"
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

/// With drawn documents of 2,000 tokens on average.
PlanRequest with_documents_of(PlanRequest request, double spread = 6000) {
  constexpr std::int64_t num_sequences = 3;
  const std::vector<std::int64_t> lengths = drawn_lengths(2000, spread, num_sequences * request.base.training.seq_len);
  request.documents = std::make_shared<DocumentLoads>(described_documents(request.base, lengths), num_sequences);
  return request;
}

TEST(Balancers, OfDocumentsIsTheQuickest) {
  const PlanRequest whole = request_with({"--data.reset_attention_mask=true"}), request = with_documents_of(whole);
  PlanResult result = find_plans(request);
  const Plan best = result.plans.front();
  choose_balancer(result, request, {});
  ASSERT_EQ(result.balanced.size(), load_balancers.size());
  const auto quickest = std::ranges::min_element(result.balanced, {}, &BalancedStep::seconds);
  EXPECT_EQ(balancer_of(result), quickest->balancer);
  EXPECT_EQ(best.choice.shape.balancer, quickest->balancer);
  EXPECT_EQ(best.outcome.step_seconds, quickest->seconds);
  EXPECT_NE(balancer_of(result), LoadBalancer::headtail);
  EXPECT_LT(quickest->seconds, result.balanced.front().seconds);
  EXPECT_LT(result.balanced.front().seconds, find_plans(whole).plans.front().outcome.step_seconds);
  EXPECT_THAT(to_text(result, request),
              HasSubstr(fmt::format("{}: {:.4f} s a step, chosen", name_of(quickest->balancer), quickest->seconds)));
  EXPECT_THAT(to_text(result, request), HasSubstr(fmt::format("4 ring {}", name_of(quickest->balancer))));
}

// Every method and balancer, with one load of documents after the other.
TEST(Balancers, OfDocumentsIsThatOfTimingEveryLayout) {
  for (const char* objective : {"time", "memory"})
    for (const double spread : {500.0, 6000.0}) {
      PlanQuestion asked = {.model = "llama-1m", .machine = "v100", .gpus = 8, .global_batch_size = 4, .seq_len = 4096};
      asked.objective = objective;
      asked.settings = {"--model.max_position_embeddings=4096",
                        "--training.micro_batch_size=1",
                        "--training.recompute=none",
                        "--parallelism.context_parallel_degree=4",
                        "--parallelism.pipeline_parallel_schedule=1F1B",
                        "--data.reset_attention_mask=true"};
      const PlanRequest request = with_documents_of(read_plan_request(asked), spread);
      const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
      EXPECT_EQ(found.num_configurations, all.num_configurations);
      EXPECT_LT(found.num_evaluated, all.num_evaluated / 10);
      ASSERT_EQ(found.plans.size(), all.plans.size());
      EXPECT_GT(all.plans.size(), 1U);
      for (std::size_t i = 0; i < all.plans.size(); ++i) {
        EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
        EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
      }
    }
}

// What was counted of a sequence once is what counting it for every layout gives.
TEST(Balancers, OfDocumentsHaveTheLoadsOfTheirLayouts) {
  const PlanRequest request = with_documents_of(request_with({"--data.reset_attention_mask=true"}));
  RunConfig config = request.base;
  config.training.global_batch_size = 8;
  config.training.micro_batch_size = 1;
  for (const bool is_balanced : {false, true})
    for (const int dp : {1, 2})
      for (const LoadBalancer balancer : load_balancers)
        for (const ContextMethod method :
             {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses_ring}) {
          config.data.balance_batch = is_balanced;
          config.parallelism.context_parallel_load_balancer = balancer;
          config.parallelism.context_parallel_method = method;
          config.parallelism.context_parallel_ulysses_degree = method == ContextMethod::ulysses_ring ? 2 : 0;
          config.parallelism.data_parallel_shard_degree = dp;
          DocumentLoads loads = *request.documents;
          const DocumentLoad counted = document_load(config, loads.documents(), batches_to_count(config));
          for (const int microbatch : {2, 1}) {  // the second from what the first has counted
            config.training.micro_batch_size = microbatch;
            (void)loads.of(config);
          }
          const DocumentLoad& known = loads.of(config);
          EXPECT_EQ(known.slowest_share, counted.slowest_share);
          EXPECT_EQ(known.pairs_share, counted.pairs_share);
          ASSERT_EQ(known.keys.of_windows.size(), counted.keys.of_windows.size());
          for (std::size_t w = 0; w < known.keys.of_windows.size(); ++w) {
            EXPECT_EQ(known.keys.of_windows[w].keys.slowest, counted.keys.of_windows[w].keys.slowest);
            EXPECT_EQ(known.keys.of_windows[w].gradients.mean, counted.keys.of_windows[w].gradients.mean);
          }
        }
}

TEST(Balancers, ThatAreFixedStay) {
  const PlanRequest request = with_documents_of(
      request_with({"--data.reset_attention_mask=true", "--parallelism.context_parallel_load_balancer=striped"}));
  PlanResult result = find_plans(request);
  choose_balancer(result, request, {});
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
  EXPECT_EQ(load_of(LoadBalancer::none).rows.front().keys, 3 * rows);
  EXPECT_EQ(load_of(LoadBalancer::headtail).rows.front().keys, (3 + 3 * 3) * rows);
  choose_balancer(result, request, {});
  EXPECT_EQ(result.balanced.size(), 3U) << "the others read documents";
  EXPECT_EQ(balancer_of(result), std::ranges::min_element(result.balanced, {}, &BalancedStep::seconds)->balancer);
}

TEST(Balancers, OfWindowsInSomeLayersAreTimed) {
  PlanRequest request = request_with({});
  request.base.model.family = Family::qwen2;
  request.base.model.sliding_window = 512;
  request.base.model.max_window_layers = 1;
  PlanResult result = find_plans(request);
  choose_balancer(result, request, {});
  EXPECT_EQ(result.balanced.size(), 3U) << "the others read documents";
}

}  // namespace
}  // namespace echelon
