// Plans of mixtures too large for a search to finish.
#include "plan/search/search.h"
#include "plan/search/tune.h"
#include "plan/text/text.h"

#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

/// A trillion parameters, with the layout of an expert on 384 B200 if `has_layout`: the experts of a layer in a node.
std::string file_of_mixture(bool has_layout) {
  std::filesystem::create_directories(scratch_folder());
  std::string path = fmt::format("{}/mixture_{}.toml", scratch_folder(), has_layout);
  std::ofstream file(path);
  file << "[model]\nmodel_type = \"mixtral\"\nhidden_size = 12288\nnum_hidden_layers = 64\nnum_attention_heads = 96\n"
          "num_key_value_heads = 8\nintermediate_size = 14336\nnum_experts = 32\nnum_experts_per_tok = 2\n"
          "vocab_size = 128256\nmax_position_embeddings = 8192\n";
  if (has_layout)
    file << "[training]\nseq_len = 8192\nglobal_batch_size = 1536\ndtype = \"bfloat16\"\n"
            "[parallelism]\ntensor_parallel_degree = 4\nsequence_parallel = true\npipeline_parallel_degree = 12\n"
            "pipeline_parallel_schedule = \"Interleaved1F1B\"\nvirtual_stages = 3\n"
            "data_parallel_shard_degree = 8\nexpert_parallel_degree = 8\n";
  return path;
}

TEST(PlanOfAMixture, SaysHowExpertsAreDivided) {
  RunConfig config = read_run_config({.path = file_of_mixture(true), .arguments = {}, .read_model = {}});
  EXPECT_EQ(expert_text(config), "8");
  config.parallelism.expert_dispatch = ExpertDispatch::all_gather;
  config.moe.dispatch_bound = 0.5;
  EXPECT_EQ(expert_text(config), "8 to all by 0.5");
  EXPECT_THAT(layout_text(config), testing::HasSubstr(", experts over 8 to all by 0.5, "));
  config.parallelism.expert_dispatch = ExpertDispatch::automatic;
  config.parallelism.ranks_per_node = 4;
  config.moe.dispatch_bound = 1.2;
  EXPECT_EQ(expert_text(config), "8 in 2 hops");
  config.parallelism.expert_parallel_degree = 1;
  config.parallelism.expert_tensor_parallel_degree = 4;
  EXPECT_EQ(expert_text(config), "1x4");
}

// With 0.3 of the default work. The same layout in the default order of axes is no faster either.
TEST(PlanOfAMixture, IsNoSlowerThanAnExpertsLayout) {
  const PlanRequest request = read_plan_request({.model = file_of_mixture(false),
                                                 .machine = "b200",
                                                 .gpus = 384,
                                                 .global_batch_size = 1536,
                                                 .seq_len = 8192,
                                                 .top = 1,
                                                 .work = 12'000'000});
  const PlanResult found = find_plans(request);
  ASSERT_FALSE(found.is_complete);
  ASSERT_FALSE(found.plans.empty());
  const double seconds = found.plans.front().outcome.step_seconds;
  RunConfig chosen = read_run_config({.path = file_of_mixture(true), .arguments = {}, .read_model = {}});
  chosen.training.device = request.base.training.device;
  const Simulation of_expert = simulate(Blueprint(chosen), request.machine);
  ASSERT_TRUE(of_expert.fits());
  EXPECT_LE(seconds, of_expert.step_seconds * (1 + 1e-9));
  EXPECT_LE(seconds, found.in_default_order ? found.in_default_order->outcome.step_seconds : seconds);
}

// Nearly all of its bytes are in the layers with experts, and few layouts fit: bounds that counted every layer as one
// without experts led the search to layouts of 27 s.
TEST(PlanOfAMixture, ThatBarelyFitsIsCloseToAnExpertsLayout) {
  PlanQuestion asked = {.model = "deepseek-v3",
                        .machine = "h100",
                        .gpus = 256,
                        .global_batch_size = 64,
                        .seq_len = 8192,
                        .top = 1,
                        .work = 4'000'000};
  const PlanResult found = find_plans(read_plan_request(asked));
  asked.settings = {"--parallelism.tensor_parallel_degree=8", "--parallelism.pipeline_parallel_degree=32",
                    "--parallelism.expert_parallel_degree=8", "--parallelism.pipeline_parallel_schedule=1F1B",
                    "--training.recompute=none"};
  const PlanResult of_expert = find_plans(read_plan_request(asked));
  ASSERT_FALSE(found.plans.empty());
  ASSERT_FALSE(of_expert.plans.empty());
  EXPECT_LE(found.plans.front().outcome.step_seconds, 1.1 * of_expert.plans.front().outcome.step_seconds);
}

// Work, not seconds, so that no busy machine fails it.
TEST(PlanOfAMixture, IsProvenBestWithinTheDefaultWork) {
  for (const PlanQuestion& asked :
       {PlanQuestion{
            .model = "mixtral-8x22b", .machine = "h100", .gpus = 128, .global_batch_size = 256, .seq_len = 4096},
        PlanQuestion{
            .model = "deepseek-v3", .machine = "h800", .gpus = 2048, .global_batch_size = 15360, .seq_len = 4096}}) {
    SCOPED_TRACE(asked.model);
    PlanRequest request = read_plan_request(asked);
    request.top = 1;
    const PlanResult found = find_fitting_plans(request);
    EXPECT_TRUE(found.is_complete);
    EXPECT_EQ(found.num_proven, 1);
    EXPECT_EQ(found.within, 0);
    EXPECT_LE(found.work, PlanQuestion{}.work);
    ASSERT_FALSE(found.plans.empty());
    EXPECT_GT(found.plans.front().choice.shape.ep, 1);
  }
}

}  // namespace
}  // namespace echelon
