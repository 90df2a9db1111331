// Single changes of a config: what they change, against `simulate` of the changed config and against the best plan.
#include "plan/search/improvement.h"

#include "base/error.h"
#include "plan/search/config_plan.h"
#include "plan/search/search.h"
#include "plan/some_host.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace echelon {
namespace {

using ::testing::HasSubstr;

struct ConfigOnMachine {
  RunConfig config;
  PlanRequest request;
};

/// A config file with these lines, on the machine.
ConfigOnMachine config_on(const std::string& lines, const std::string& machine) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = scratch_folder() + "/" + test->name() + ".toml";
  std::ofstream(path) << lines;
  PlanQuestion question;
  question.model = path;
  question.machine = machine;
  RunConfig config = read_asked_config(path, question);
  question.gpus = config.mesh_shape().num_ranks();
  return {std::move(config), read_plan_request(question)};
}

const std::string some_config =
    "[model]\npreset = \"gpt2-124m\"\n"
    "[training]\nglobal_batch_size = 32\nseq_len = 1024\ndtype = \"bfloat16\"\nrecompute = \"full\"\n"
    "[parallelism]\ntensor_parallel_degree = 2\npipeline_parallel_degree = 2\ndata_parallel_shard_degree = 4\n";

double simulated_seconds(const RunConfig& config, const PlanRequest& request) {
  RunConfig on_gpus = config;
  on_gpus.training.device = DeviceChoice::cuda;
  return simulate(Blueprint(on_gpus), request.machine).step_seconds;
}

std::set<std::string> values_of(const std::vector<SingleChange>& changes, const std::string& key) {
  std::set<std::string> values;
  for (const SingleChange& each : changes)
    if (each.change.key == key) values.insert(each.change.is);
  return values;
}

TEST(Improvement, ChangesOneChoiceAndWhatFollows) {
  const ConfigOnMachine asked = config_on(some_config, "a100-80");
  const std::vector<SingleChange> changes = single_changes(asked.config, asked.request.machine);
  for (const SingleChange& each : changes) {
    SCOPED_TRACE(to_text(each.change));
    EXPECT_EQ(each.config.mesh_shape().num_ranks(), 16);
    EXPECT_EQ(each.config.training.global_batch_size, 32);
    EXPECT_EQ(each.config.training.seq_len, 1024);
    EXPECT_EQ(each.config.model, asked.config.model);
    const std::string path = scratch_folder() + "/single_change.toml";
    std::ofstream(path) << to_toml(each.config);
    EXPECT_EQ(read_run_config({.path = path, .arguments = {}, .read_model = {}}), each.config);
    EXPECT_EQ(config_changes(asked.config, each.config).size(), 1 + each.with.size());
  }
  // 16 ranks are tp x pp x dp; 8 sequences are a data-parallel rank's.
  EXPECT_EQ(values_of(changes, "parallelism.tensor_parallel_degree"), (std::set<std::string>{"1", "4", "8"}));
  EXPECT_EQ(values_of(changes, "parallelism.pipeline_parallel_degree"), (std::set<std::string>{"1", "4", "8"}));
  EXPECT_EQ(values_of(changes, "parallelism.data_parallel_shard_degree"), (std::set<std::string>{"1", "2"}));
  EXPECT_EQ(values_of(changes, "parallelism.zero_level"), (std::set<std::string>{"2", "3"}));
  EXPECT_EQ(values_of(changes, "parallelism.sequence_parallel"), std::set<std::string>{"true"});
  EXPECT_EQ(values_of(changes, "training.micro_batch_size"), (std::set<std::string>{"2", "4", "8"}));
  EXPECT_EQ(values_of(changes, "training.dtype"), (std::set<std::string>{"\"float16\"", "\"float32\""}));
  EXPECT_EQ(values_of(changes, "training.recompute").size(), 5U);
  EXPECT_EQ(values_of(changes, "parallelism.order").size(), 5U);                  // of three axes
  EXPECT_EQ(values_of(changes, "parallelism.reshard_after_forward").size(), 0U);  // of ZeRO-3 alone
}

TEST(Improvement, OfADegreeMovesRanksToDataParallelism) {
  const ConfigOnMachine asked = config_on(some_config, "a100-80");
  for (const SingleChange& each : single_changes(asked.config, asked.request.machine)) {
    if (each.change.key != "parallelism.tensor_parallel_degree" || each.change.is != "1") continue;
    ASSERT_EQ(each.with.size(), 1U);
    EXPECT_EQ(each.with.front().key, "parallelism.data_parallel_shard_degree");
    EXPECT_EQ(each.with.front().is, "8");
    EXPECT_EQ(each.config.parallelism.zero_level, asked.config.parallelism.zero_level);
  }
}

// Over nodes of eight devices; ranks that are threads have none.
TEST(Improvement, ChangesHowRowsTravelToExperts) {
  const ConfigOnMachine asked = config_on(
      "[model]\npreset = \"qwen3-30b-a3b\"\nnum_hidden_layers = 2\n"
      "[training]\nglobal_batch_size = 16\nseq_len = 1024\ndtype = \"bfloat16\"\n"
      "[parallelism]\ndata_parallel_shard_degree = 16\nexpert_parallel_degree = 16\n",
      "a100-40");
  const auto values = [&](const std::string& key, const MachineSpec& machine) {
    return values_of(single_changes(asked.config, machine), key);
  };
  std::set<std::string> ways = {"\"all_gather\"", "\"direct\""};
  EXPECT_EQ(values("parallelism.expert_dispatch", some_host()), ways);
  ways.insert("\"hierarchical\"");
  EXPECT_EQ(values("parallelism.expert_dispatch", asked.request.machine), ways);
  EXPECT_EQ(values("moe.dispatch_bound", asked.request.machine), (std::set<std::string>{"0.6", "2.4"}));
  const auto with = [&](ExpertDispatch dispatch) {
    RunConfig config = asked.config;
    config.parallelism.expert_dispatch = dispatch;
    return config;
  };
  const RunConfig directly = with(ExpertDispatch::direct);
  const Plan in_two_hops = plan_of(with(ExpertDispatch::hierarchical), asked.request);
  EXPECT_EQ(in_two_hops.choice.shape.ranks_per_node, 8);
  EXPECT_LT(in_two_hops.outcome.step_seconds, plan_of(directly, asked.request).outcome.step_seconds);
  EXPECT_EQ(in_two_hops.outcome.step_seconds, plan_of(asked.config, asked.request).outcome.step_seconds);  // automatic
  EXPECT_THAT(to_text(improve(directly, asked.request), asked.request), HasSubstr("expert_dispatch"));
}

// Claim (plans): `plan --improve` names the single changes of a config that shorten its step most.
// Bound: as `simulate` times them; none is faster than the best plan.
// Tests: Improvement
TEST(Improvement, NamesTheBestValueOfTheKeysThatHelpMost) {
  const ConfigOnMachine asked = config_on(some_config, "a100-80");
  const Improvement found = improve(asked.config, asked.request);
  ASSERT_EQ(found.changes.size(), 3U);
  EXPECT_EQ(found.current.outcome.step_seconds, simulated_seconds(asked.config, asked.request));
  std::map<std::string, double> best;  // of each key
  for (const SingleChange& each : single_changes(asked.config, asked.request.machine)) {
    const double seconds = simulated_seconds(each.config, asked.request);
    const auto [known, is_new] = best.try_emplace(each.change.key, seconds);
    if (!is_new) known->second = std::min(known->second, seconds);
  }
  std::vector<double> sorted;
  for (const auto& [key, seconds] : best) sorted.push_back(seconds);
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < 3; ++i) {
    const ChangedPlan& change = found.changes[i];
    EXPECT_EQ(change.plan.outcome.step_seconds, sorted[i]);
    EXPECT_EQ(best[change.change.change.key], sorted[i]);
    EXPECT_LT(sorted[i], found.current.outcome.step_seconds);
    EXPECT_TRUE(change.plan.outcome.fits());
  }
  const PlanResult plans = find_plans(asked.request);  // bfloat16 as well, since the file says so
  EXPECT_LE(plans.plans.front().outcome.step_seconds, sorted.front() * (1 + 1e-9));
}

TEST(Improvement, SaysWhichPartOfTheStepFalls) {
  const ConfigOnMachine asked = config_on(some_config, "a100-80");
  const Improvement found = improve(asked.config, asked.request);
  const auto json = nlohmann::json::parse(to_json(found, asked.request));
  EXPECT_EQ(json.at("rates"),
            "the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, "
            "since Echelon was not measured on a GPU");
  for (const auto& change : json.at("changes")) {
    double sum = 0;
    for (const auto& [part, seconds] : change.at("part_differences").items()) sum += seconds.get<double>();
    const double was = json.at("current").at("predicted_seconds");
    EXPECT_NEAR(sum, change.at("predicted_seconds").get<double>() - was, 1e-9 * was);
  }
  EXPECT_THAT(to_text(found, asked.request), HasSubstr("The single changes that help most"));
  // Nothing is recomputed: forward passes are not run twice.
  const auto has_key = [](const ChangedPlan& each) { return each.change.change.key == "training.recompute"; };
  const auto recomputes = std::find_if(found.changes.begin(), found.changes.end(), has_key);
  ASSERT_NE(recomputes, found.changes.end());
  EXPECT_EQ(recomputes->change.change.is, "\"none\"");
  EXPECT_LT(recomputes->plan.outcome.parts.compute_seconds, found.current.outcome.parts.compute_seconds);
}

TEST(Improvement, OfTheBestPlanIsNone) {
  PlanQuestion question = {.model = "gpt2-124m", .machine = "h100", .gpus = 4, .global_batch_size = 16, .seq_len = 512};
  question.top = 1;
  const PlanRequest request = read_plan_request(question);
  const PlanResult best = find_plans(request);
  ASSERT_TRUE(best.is_complete);
  const Improvement found = improve(best.plans.front().config, request);
  EXPECT_GT(found.num_tried, 10);
  EXPECT_TRUE(found.changes.empty()) << to_text(found, request);
  EXPECT_THAT(to_text(found, request), HasSubstr("no single change makes the step shorter"));
}

TEST(Improvement, OfWhatDoesNotFitIsWhatFits) {
  const ConfigOnMachine asked = config_on(
      "[model]\npreset = \"llama3-8b\"\n[training]\nglobal_batch_size = 32\nseq_len = 2048\ndtype = \"bfloat16\"\n"
      "[parallelism]\ndata_parallel_shard_degree = 8\nzero_level = 1\n",
      "a100-40");
  const Improvement found = improve(asked.config, asked.request);
  ASSERT_FALSE(found.current.outcome.fits());
  ASSERT_FALSE(found.changes.empty());
  for (const ChangedPlan& each : found.changes) EXPECT_TRUE(each.plan.outcome.fits());
  EXPECT_THAT(to_text(found, asked.request), HasSubstr("it does not fit"));
}

TEST(Improvement, OfASlowFormatIsAFastOne) {
  const ConfigOnMachine asked = config_on(
      "[model]\npreset = \"gpt2-124m\"\n[training]\nglobal_batch_size = 8\nseq_len = 1024\n"
      "[parallelism]\ndata_parallel_shard_degree = 2\n",
      "v100");
  const Improvement found = improve(asked.config, asked.request);
  ASSERT_FALSE(found.changes.empty());
  EXPECT_EQ(found.changes.front().change.change.key, "training.dtype");
  EXPECT_EQ(found.changes.front().change.change.is, "\"float16\"");  // the only 16-bit format of a V100
  EXPECT_THAT(to_text(found, asked.request), HasSubstr("it changes how values are rounded"));
}

}  // namespace
}  // namespace echelon
