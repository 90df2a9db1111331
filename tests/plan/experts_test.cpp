// What an expert would ask of a plan: no layout that experts chose is better, whatever ends the search; and requests of
// every size are answered within counted work.
#include "plan/search/search.h"

#include "base/error.h"
#include "plan/search/scaling.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

#include <fstream>

namespace echelon {
namespace {

constexpr std::int64_t work_of_a_short_search = 4'000'000;  // a twentieth of the default
// The largest search takes 37 million units, 6 to 8 s of one core (Intel Granite Rapids).
constexpr std::int64_t work_of_a_proof = 40'000'000;

const std::string textbook = ECHELON_SOURCE_DIR "/examples/textbook/";

struct ChosenByExperts {
  const char *file, *machine;
};

// Claim (plans): `echelon plan` is never slower than the layouts in `examples/textbook`, also where its search has
//   ended early.
// Bound: four published layouts of 70 to 530 B parameters, on up to 16,384 GPUs, with a twentieth of the default work.
// Tests: PlanForExperts
TEST(PlanForExperts, IsNoSlowerThanPublishedLayouts) {
  for (const ChosenByExperts& each : {ChosenByExperts{"llama3-405b.toml", "h100"},
                                      {"llama3-70b.toml", "h100"},
                                      {"gpt3-175b.toml", "a100-80"},
                                      {"mtnlg-530b.toml", "a100-80"}}) {
    SCOPED_TRACE(each.file);
    const RunConfig chosen = read_run_config({.path = textbook + each.file, .arguments = {}, .read_model = {}});
    const PlanRequest request = read_plan_request({.model = textbook + each.file,
                                                   .machine = each.machine,
                                                   .gpus = chosen.mesh_shape().num_ranks(),
                                                   .global_batch_size = {},
                                                   .seq_len = {},
                                                   .top = 1,
                                                   .work = work_of_a_short_search});
    RunConfig as_planned = chosen;  // the planner chooses the format where the file names none
    as_planned.training.dtype = request.base.training.dtype;
    as_planned.training.device = request.base.training.device;
    const PlanResult found = find_plans(request);
    ASSERT_FALSE(found.plans.empty());
    const Simulation of_experts = simulate(Blueprint(as_planned), request.machine);
    ASSERT_TRUE(of_experts.fits());
    EXPECT_LE(found.plans.front().outcome.step_seconds, of_experts.step_seconds * (1 + 1e-9));
  }
}

TEST(PlanForExperts, PolishesEveryListedTriple) {
  PlanQuestion asked = {.model = "llama3-70b",
                        .machine = "h100",
                        .gpus = 256,
                        .global_batch_size = 512,
                        .seq_len = 4096,
                        // half of it is for the proof
                        .work = 24'000'000};
  const PlanResult found = find_plans(read_plan_request(asked));
  ASSERT_FALSE(found.is_complete);
  for (const Plan& plan : found.plans) {
    const PlanShape& shape = plan.choice.shape;
    asked.settings = {fmt::format("--parallelism.tensor_parallel_degree={}", shape.tp),
                      fmt::format("--parallelism.pipeline_parallel_degree={}", shape.pp)};
    asked.top = 1;
    const PlanResult of_triple = find_plans(read_plan_request(asked));
    EXPECT_LE(plan.outcome.step_seconds, 1.1 * of_triple.plans.front().outcome.step_seconds) << shape.tp << shape.pp;
  }
}

TEST(PlanForExperts, ListsEachTripleOnceWhereTheLimitComesAfterTheFirst) {
  PlanQuestion asked = {.model = "llama3-8b", .machine = "h100", .gpus = 16, .global_batch_size = 64, .seq_len = 8192};
  asked.top = 1;
  const std::int64_t of_first = find_plans(read_plan_request(asked)).work;
  asked.top = 5;
  asked.work = of_first + 1;
  const PlanResult found = find_plans(read_plan_request(asked));
  ASSERT_FALSE(found.is_complete);
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> triples;
  for (const Plan& plan : found.plans)
    EXPECT_TRUE(triples.insert({plan.choice.shape.tp, plan.choice.shape.pp, plan.choice.shape.dp}).second);
}

/// A dense model of 100 B parameters.
std::string file_of_a_dense_model() {
  std::string path = scratch_folder() + "/dense_model.toml";
  std::ofstream(path) << "[model]\nmodel_type = \"llama\"\nhidden_size = 10240\nnum_hidden_layers = 80\n"
                         "num_attention_heads = 80\nnum_key_value_heads = 8\nintermediate_size = 28672\n"
                         "vocab_size = 128256\nmax_position_embeddings = 8192\n";
  return path;
}

struct Asked {
  std::string model, machine;
  std::int64_t gpus, batch, seq_len;
  std::vector<std::string> settings = {};
};

// Work, not seconds, so that no busy machine fails it.
TEST(PlanForExperts, ProvesTheBestLayoutWithinHalfItsWork) {
  for (const Asked& each : {Asked{"llama3-8b", "h100", 16, 64, 8192},
                            {"llama3-8b", "h100", 12, 96, 8192},
                            {"llama2-13b", "v100", 32, 256, 4096},
                            {"llama3-70b", "h100", 1024, 1024, 8192},
                            {file_of_a_dense_model(), "h800", 1024, 1024, 8192}}) {
    SCOPED_TRACE(each.model + " on " + each.machine);
    const PlanResult found = find_plans(read_plan_request({.model = each.model,
                                                           .machine = each.machine,
                                                           .gpus = each.gpus,
                                                           .global_batch_size = each.batch,
                                                           .seq_len = each.seq_len,
                                                           .top = 1}));
    ASSERT_FALSE(found.plans.empty());
    EXPECT_TRUE(found.is_complete);
    EXPECT_EQ(found.within, 0);
    EXPECT_EQ(found.num_proven, 1);
    EXPECT_LE(found.work, work_of_a_proof);
  }
}

TEST(PlanForExperts, ProvesTheLargestModelsWithinHalfItsWork) {
  for (const Asked& each : {Asked{"llama3-405b", "h100", 16384, 2048, 8192},
                            {"llama3-405b", "h100", 16384, 128, 131072, {"--model.max_position_embeddings=131072"}},
                            {"gpt3-175b", "a100-80", 4096, 4096, 2048}}) {
    SCOPED_TRACE(each.model);
    const PlanResult found = find_fitting_plans(read_plan_request({.model = each.model,
                                                                   .machine = each.machine,
                                                                   .gpus = each.gpus,
                                                                   .global_batch_size = each.batch,
                                                                   .seq_len = each.seq_len,
                                                                   .top = 1,
                                                                   .settings = each.settings}));
    EXPECT_TRUE(found.is_complete);
    EXPECT_EQ(found.within, 0);
    EXPECT_EQ(found.num_proven, 1);
    EXPECT_LE(found.work, work_of_a_proof);
  }
}

// Three million units are less than a second of one core.
TEST(PlanForExperts, PlansPresetsOnOneToEightNodesWithinLittleWork) {
  constexpr std::int64_t little_work = 3'000'000;
  for (const char* model :
       {"llama-1m", "llama-10m", "llama-100m", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "llama2-7b",
        "llama2-13b", "llama2-70b", "llama3-8b", "llama3-70b", "qwen2-0.5b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-8b"})
    for (const std::int64_t gpus : {8, 64}) {
      SCOPED_TRACE(fmt::format("{} on {}", model, gpus));
      const PlanResult found = find_fitting_plans(read_plan_request({.model = model,
                                                                     .machine = "h100",
                                                                     .gpus = gpus,
                                                                     .global_batch_size = 256,
                                                                     .seq_len = {},
                                                                     .top = 1,
                                                                     // half of it is for the proof
                                                                     .work = 2 * little_work}));
      EXPECT_TRUE(found.is_complete);
      EXPECT_EQ(found.within, 0);
      EXPECT_LE(found.work, little_work);
    }
}

TEST(PlanForExperts, TakesSequencesLongerThanThePresets) {
  const Asked asked = {"llama3-8b", "h100", 64, 64, 32768, {"--model.max_position_embeddings=32768"}};
  const PlanResult found = find_plans(read_plan_request({.model = asked.model,
                                                         .machine = asked.machine,
                                                         .gpus = asked.gpus,
                                                         .global_batch_size = asked.batch,
                                                         .seq_len = asked.seq_len,
                                                         .top = 1,
                                                         .settings = asked.settings}));
  ASSERT_FALSE(found.plans.empty());
  EXPECT_EQ(found.plans.front().config.training.seq_len, 32768);
}

TEST(PlanForExperts, RefusesALimitBelowZero) {
  try {
    (void)read_plan_request(
        {.model = "llama-1m", .machine = "h100", .gpus = 1, .global_batch_size = 1, .seq_len = 64, .work = -1});
    ADD_FAILURE() << "--work=-1 is accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--work=-1 is not a limit of a search (use 0 for no limit)");
  }
}

// A device and hour cost 2: seconds * devices * 2 / 3600 for the tokens of a step.
TEST(PlanForExperts, ScalingHasThePriceOfTokens) {
  PlanQuestion asked = {.model = "llama-1m", .machine = "h100", .gpus = 4, .global_batch_size = 8, .seq_len = 64};
  asked.price = 2;
  const PlanRequest request = read_plan_request(asked);
  const Scaling scaling = scaling_of(request);
  ASSERT_EQ(scaling.points.size(), 3U);
  for (const ScalingPoint& each : scaling.points) {
    const double of_step = each.plan.outcome.step_seconds * static_cast<double>(each.num_devices) * 2 / 3600;
    EXPECT_NEAR(each.price_per_million_tokens / (of_step / (8 * 64) * 1e6), 1, 1e-12);
  }
  EXPECT_NE(to_text(scaling, request).find("a million tokens cost"), std::string::npos);
}

}  // namespace
}  // namespace echelon
