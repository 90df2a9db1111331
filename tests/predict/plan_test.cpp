// The search against timing everything, and against layouts drawn at random; and what it refuses.
#include "predict/plan.h"

#include "predict/plan_text.h"
#include "spec/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace echelon {
namespace {

using testing::HasSubstr;

PlanQuestion question(const std::string& model, const std::string& machine, std::int64_t gpus, std::int64_t batch, std::int64_t seq_len) {
  return {.model = model, .machine = machine, .gpus = gpus, .global_batch_size = batch, .seq_len = seq_len};
}

std::string sentence_of(const PlanQuestion& asked) {
  try {
    const PlanRequest request = read_plan_request(asked);
    (void)PlanSpace(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Requests whose spaces are small enough to be timed as a whole; where memory is short and where it is not, for time and for memory.
std::vector<PlanRequest> small_requests() {
  std::vector<PlanRequest> requests;
  for (const char* objective : {"time", "memory"}) {
    PlanQuestion asked = question("llama-10m", "h100", 2, 4, 64);
    asked.objective = objective;
    asked.settings = {"--training.micro_batch_size=1", "--parallelism.virtual_stages=2"};
    requests.push_back(read_plan_request(asked));
    asked = question("gpt2-124m", "v100", 4, 4, 1024);
    asked.objective = objective;
    asked.settings = {"--parallelism.pipeline_parallel_schedule=1F1B", "--training.recompute_method=uniform"};
    requests.push_back(read_plan_request(asked));
    requests.push_back(requests.back());
    requests.back().machine.nodes.front().device.memory_bytes = std::int64_t{3} << 29;  // 1.5 GiB: most layouts do not fit
  }
  return requests;
}

TEST(Plan, IsThatOfTimingEveryLayout) {
  for (const PlanRequest& request : small_requests()) {
    const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
    SCOPED_TRACE(fmt::format("{} of {}: {} layouts", request.num_devices, request.machine.name, all.num_configurations));
    EXPECT_EQ(found.num_configurations, all.num_configurations);
    EXPECT_LT(found.num_evaluated, all.num_evaluated);
    ASSERT_EQ(found.plans.size(), all.plans.size());
    for (std::size_t i = 0; i < all.plans.size(); ++i) {
      EXPECT_EQ(found.plans[i].outcome.step_seconds, all.plans[i].outcome.step_seconds);
      EXPECT_EQ(found.plans[i].outcome.peak_memory_bytes(), all.plans[i].outcome.peak_memory_bytes());
    }
  }
}

TEST(Plan, NamesTheLayoutThatNeedsLeastWhereNothingFits) {
  PlanRequest request = small_requests()[1];
  request.machine.nodes.front().device.memory_bytes = 1 << 28;
  const PlanResult found = find_plans(request), all = find_plans_exhaustively(request);
  EXPECT_TRUE(found.plans.empty());
  ASSERT_TRUE(found.nearest && all.nearest);
  EXPECT_EQ(found.nearest->outcome.peak_memory_bytes(), all.nearest->outcome.peak_memory_bytes());
}

TEST(Plan, RefusesWithASentence) {
  EXPECT_THAT(sentence_of(question("llama-10m", "h100", 0, 4, 64)), HasSubstr("--gpus=0"));
  EXPECT_THAT(sentence_of(question("llama-10m", "h101", 8, 8, 64)), testing::AllOf(HasSubstr("h101"), HasSubstr("h100")));
  EXPECT_THAT(sentence_of(question("lama-10m", "h100", 8, 8, 64)), testing::AllOf(HasSubstr("lama-10m"), HasSubstr("llama-10m")));
  PlanQuestion asked = question("llama-10m", "h100", 7, 6, 64);
  asked.settings = {"--parallelism.pipeline_parallel_degree=1"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("--gpus=7"));
  asked = question("llama-10m", "h100", 8, 8, 64);
  asked.settings = {"--parallelism.tensor_parallel_degree=3"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("tensor_parallel_degree"));
  asked.settings = {"--parallelism.tensor_parallel_degre=2"};
  EXPECT_THAT(sentence_of(asked), HasSubstr("nearest: parallelism.tensor_parallel_degree"));
  asked.settings = {};
  asked.objective = "tiem";
  EXPECT_THAT(sentence_of(asked), HasSubstr("nearest: time"));
}

TEST(Plan, JsonHasWhatAProgramNeeds) {
  const PlanRequest request = small_requests().front();
  const auto json = nlohmann::json::parse(to_json(find_plans(request), request));
  EXPECT_GT(json.at("configurations"), 100);
  EXPECT_GT(json.at("evaluated"), 0);
  EXPECT_GT(json.at("seconds"), 0.0);
  EXPECT_GT(json.at("plans").at(0).at("predicted_seconds"), 0.0);
}

}  // namespace
}  // namespace echelon
