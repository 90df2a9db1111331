// echelon plan --compare and --improve from the command line.
#include "checkpoint/scratch_folder.h"
#include "cli/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using Json = nlohmann::json;

/// What differs between two plans adds up to the difference of their steps.
void expect_parts_add_up(const Json& compared) {
  double sum = 0;
  for (const auto& [part, seconds] : compared["differences"]["parts"].items()) sum += seconds.get<double>();
  const double first = compared["compared"][0]["predicted_seconds"],
               second = compared["compared"][1]["predicted_seconds"];
  EXPECT_DOUBLE_EQ(compared["differences"]["predicted_seconds"], second - first);
  EXPECT_NEAR(sum, second - first, 1e-9 * first);
}

TEST(Plan, ComparesALayoutWithTheBestOnePartByPart) {
  const std::vector<std::string> asked = {"--machine=h100", "--gpus=4", "--compare=tp=4"};
  const Json compared = planned_json(asked);
  EXPECT_EQ(compared["compared"][0]["predicted_seconds"],
            best_plan({"--machine=h100", "--gpus=4"})["predicted_seconds"]);
  EXPECT_EQ(compared["compared"][1]["predicted_seconds"],
            best_plan({"--machine=h100", "--gpus=4", "--parallelism.tensor_parallel_degree=4"})["predicted_seconds"]);
  EXPECT_EQ(compared["compared"][1]["tensor_parallel_degree"], 4);
  EXPECT_GT(compared["differences"]["predicted_seconds"], 0);
  expect_parts_add_up(compared);
  EXPECT_THAT(planned(asked).out, HasSubstr("exposed communication over tp"));
}

TEST(Plan, ComparesTwoLayouts) {
  const Json compared = planned_json(
      {"--machine=h100", "--gpus=4", "--compare=tp=2,pp=2", "--compare=parallelism.pipeline_parallel_degree=4"});
  EXPECT_EQ(compared["compared"][0]["tensor_parallel_degree"], 2);
  EXPECT_EQ(compared["compared"][0]["pipeline_parallel_degree"], 2);
  EXPECT_EQ(compared["compared"][1]["pipeline_parallel_degree"], 4);
  expect_parts_add_up(compared);
}

std::string config_of_two_gpus(const ScratchFolder& scratch, const std::string& name, const std::string& recompute) {
  std::string path = scratch / (name + ".toml");
  put(path, "[model]\npreset = \"llama-1m\"\n[training]\nseq_len = 64\ndtype = \"bfloat16\"\nrecompute = \"" +
                recompute + "\"\n[parallelism]\ndata_parallel_shard_degree = 2\n");
  return path;
}

// Each has the time of `simulate`, and the model and the number of devices are the first one's.
TEST(Plan, ComparesTwoConfigsPartByPart) {
  const ScratchFolder scratch;
  const std::string first = config_of_two_gpus(scratch, "first", "none"),
                    second = config_of_two_gpus(scratch, "second", "full");
  const Outcome outcome =
      run_echelon({"plan", "--compare=" + first, "--compare=" + second, "--machine=h100", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json compared = Json::parse(outcome.out);
  for (const int i : {0, 1}) {
    const Outcome simulated = run_echelon({"simulate", i == 0 ? first : second, "--machine=h100", "--json"});
    EXPECT_EQ(compared["compared"][i]["predicted_seconds"], Json::parse(simulated.out)["predicted_seconds"]);
  }
  EXPECT_GT(compared["differences"]["parts"]["compute"], 0);
  expect_parts_add_up(compared);
  EXPECT_EQ(compared["rates"],
            "the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, "
            "since Echelon was not measured on a GPU");
}

TEST(Plan, ComparesAConfigWithTheBestLayoutOfItsModel) {
  const ScratchFolder scratch;
  const std::string config = config_of_two_gpus(scratch, "config", "full");
  const Outcome outcome = run_echelon({"plan", config, "--compare=" + config, "--machine=h100", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json compared = Json::parse(outcome.out)["compared"];
  EXPECT_EQ(compared[0]["gpus"], 2);
  EXPECT_LT(compared[0]["predicted_seconds"], compared[1]["predicted_seconds"]);
  EXPECT_EQ(compared[1]["recompute"], Json::array({"full"}));
}

TEST(Plan, ImprovesAConfig) {
  const ScratchFolder scratch;
  const std::string config = config_of_two_gpus(scratch, "config", "full");
  const Outcome outcome = run_echelon({"plan", config, "--improve", "--machine=h100", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json found = Json::parse(outcome.out);
  ASSERT_FALSE(found["changes"].empty());
  for (const Json& change : found["changes"]) {
    std::vector<std::string> changed = {"simulate", config, "--machine=h100", "--json"};
    const auto set = [&](const std::string& key, std::string value) {
      std::erase(value, '"');
      changed.push_back(fmt::format("--{}={}", key, value));
    };
    set(change["key"], change["is"]);
    for (const auto& [key, value] : change["with"].items()) set(key, value);
    EXPECT_EQ(Json::parse(run_echelon(changed).out)["predicted_seconds"], change["predicted_seconds"]);
  }
  EXPECT_THAT(run_echelon({"plan", config, "--improve", "--machine=h100"}).out,
              HasSubstr("training.recompute = \"none\" instead of \"full\""));
}

// 18 bytes for each of 1.5 B parameters leave a third of 40 GiB, too little for 64 sequences at once; 8 B need more.
TEST(Plan, ImprovesAConfigThatDoesNotFitOnItsOnlyDevice) {
  const ScratchFolder scratch;
  const auto improved = [&](const std::string& batch, const std::string& model) {
    const std::string path = scratch / "alone.toml";
    put(path, "[model]\npreset = \"" + model + "\"\n[training]\nseq_len = 1024\ndtype = \"bfloat16\"\n" +
                  "global_batch_size = " + batch + "\nmicro_batch_size = " + batch + "\n");
    const Outcome outcome = run_echelon({"plan", path, "--improve", "--machine=a100-40", "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const Json fits = improved("64", "gpt2-1.5b");
  EXPECT_FALSE(fits["current"]["fits"]);
  ASSERT_FALSE(fits["changes"].empty());
  EXPECT_EQ(fits["changes"][0]["key"], "training.micro_batch_size");
  const Json never = improved("1", "llama3-8b");
  EXPECT_TRUE(never["changes"].empty());
  EXPECT_THAT(never["reason"].get<std::string>(), HasSubstr("use more devices"));
  EXPECT_EQ(never["together"]["changes"][0]["key"], "training.recompute");
  EXPECT_FALSE(never["together"]["fits"]);
}

TEST(Plan, RefusesWhatCannotBeImproved) {
  const ScratchFolder scratch;
  const std::string config = config_of_two_gpus(scratch, "config", "full");
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "--improve", "--machine=h100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_THAT(refusal({"llama-1m"}), HasSubstr("--improve needs a config file, and 'llama-1m' is none"));
  EXPECT_THAT(refusal({config, "--gpus=4"}), HasSubstr("whose degrees make 2 (use 2)"));
  EXPECT_THAT(refusal({config, "--scaling"}), HasSubstr("--improve prints changes of one config and nothing else"));
  EXPECT_THAT(refusal({config, "--compare=tp=2"}), HasSubstr("omit one of them"));
  EXPECT_THAT(refusal({config, "--objective=memory"}), HasSubstr("--objective=memory is given (use time)"));
}

TEST(Plan, ComparesHowExpertsAreDivided) {
  const Outcome outcome = run_echelon({"plan", "mixtral-30m", "--machine=h100", "--gpus=4", "--global-batch-size=4",
                                       "--training.seq_len=64", "--compare=ep=2,etp=2,dispatch=direct",
                                       "--compare=ep=2,etp=2,dispatch=all_gather"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("ep=2,etp=2,dispatch=direct: .*experts over 2x2, "));
  EXPECT_THAT(outcome.out, ContainsRegex("ep=2,etp=2,dispatch=all_gather: .*experts over 2x2 to all, "));
}

TEST(Plan, RefusesWhatIsNoLayoutToCompare) {
  const auto refusal = [](const std::string& layout) {
    return planned({"--machine=h100", "--gpus=4", "--compare=" + layout}).err;
  };
  EXPECT_THAT(refusal("tp=2,tp=1"),
              HasSubstr("--compare=tp=2,tp=1 has tp twice; for two layouts give --compare twice"));
  EXPECT_THAT(refusal("tp"), HasSubstr("--compare=tp is not a layout (example: --compare=tp=8,pp=4)"));
  EXPECT_THAT(refusal("tp=2,=4"), HasSubstr("is not a layout"));
  EXPECT_THAT(refusal("tp=2,dp=2"), HasSubstr("dp is the product of parallelism.data_parallel_replicate_degree and "
                                              "parallelism.data_parallel_shard_degree; use these"));
  EXPECT_THAT(refusal("vpp=2"), HasSubstr("there is no choice 'vpp'; did you mean parallelism.virtual_stages?"));
  EXPECT_THAT(refusal("vpp=2"), HasSubstr("(tp, pp, cp, ep, etp, dispatch, mbs, zero, recompute or a key)"));
  EXPECT_THAT(refusal("training.steps=4"), HasSubstr("--training.steps=4 is no choice of the planner"));
  EXPECT_THAT(refusal("cp=0"), HasSubstr("parallelism.context_parallel_degree = 0 is below 1 (use 1)"));
  EXPECT_THAT(refusal("tp=many"), HasSubstr("parallelism.tensor_parallel_degree"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2..4", "--compare=tp=2"}).err, HasSubstr("omit --scaling"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=4", "--compare=tp=1", "--compare=tp=2", "--compare=tp=4"}).err,
              HasSubstr("--compare is given 3 times"));
}

}  // namespace
}  // namespace echelon
