// echelon plan from the command line.
#include "checkpoint/scratch_folder.h"
#include "cli/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace echelon {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

TEST(Plan, ScalingListsTheBestStepOverMoreAndMoreDevicesAndDrawsIt) {
  const ScratchFolder scratch;
  const std::string svg = scratch / "scaling.svg";
  const Json scaling = planned_json({"--machine=h100", "--gpus=4", "--scaling", "--svg=" + svg});
  EXPECT_EQ(scaling["rates"],
            "the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, "
            "since Echelon was not measured on a GPU");
  EXPECT_EQ(scaling["profile"], "echelon");
  const Json points = scaling["scaling"];
  ASSERT_EQ(points.size(), 3U);
  for (const Json& point : points) {
    EXPECT_TRUE(point["complete"]);
    EXPECT_LT(point["interval_seconds"][0], point["predicted_seconds"]);
  }
  const double alone = points[0]["predicted_seconds"];
  for (std::size_t i = 0; i < 3; ++i) {
    const int gpus = points[i]["gpus"];
    const double seconds = points[i]["predicted_seconds"];
    EXPECT_EQ(gpus, 1 << i);
    EXPECT_DOUBLE_EQ(points[i]["efficiency"], alone / gpus / seconds);
    EXPECT_EQ(best_plan({"--machine=h100", fmt::format("--gpus={}", gpus), "--top=1"})["predicted_seconds"], seconds);
  }
  const std::string drawing = get(svg);
  EXPECT_THAT(drawing, HasSubstr("<svg"));
  std::size_t num_marks = 0;
  for (std::size_t at = drawing.find("<circle"); at != std::string::npos; at = drawing.find("<circle", at + 1))
    ++num_marks;
  EXPECT_EQ(num_marks, 3U);
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--svg=" + svg}).err, HasSubstr("needs --scaling"));
}

// A number of devices without a plan is named, and so is an interrupted search.
TEST(Plan, TheTableHasColumnsAsWideAsTheyNeed) {
  const Outcome outcome =
      run_echelon({"plan", "llama3-8b", "--machine=h100", "--gpus=64", "--global-batch-size=256", "--seq-len=8192"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string headline, header, row;
  std::getline(lines, headline);
  std::getline(lines, header);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(std::getline(lines, row));
    for (const char* const column : {"schedule", "data", "recompute"}) {
      const std::size_t begin = header.find(column);
      EXPECT_EQ(row.substr(begin - 2, 2), "  ") << row;
      EXPECT_NE(row[begin], ' ') << row;
    }
  }
  ASSERT_TRUE(std::getline(lines, row));
  EXPECT_THAT(row, HasSubstr("*: the embedding and the head count as a layer each"));
}

TEST(Plan, SaysThatPositionsAreRaised) {
  const ScratchFolder scratch;
  const std::string page = scratch / "raised.html",
                    note = "model.max_position_embeddings = 512 of 'llama-1m' is raised to --seq-len=8192";
  const auto raised = [](const std::string& flag) {
    return run_echelon(
        {"plan", "llama-1m", "--machine=h100", "--gpus=2", "--global-batch-size=8", "--seq-len=8192", flag});
  };
  EXPECT_THAT(raised("--html=" + page).out, HasSubstr("\n" + note + "\n"));
  std::ifstream html(page);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(html), {}), HasSubstr("is raised to --seq-len=8192"));
  EXPECT_THAT(raised("--scaling").out, HasSubstr("\n" + note + "\n"));
  EXPECT_THAT(raised("--compare=tp=2").out, HasSubstr("\n" + note + "\n"));
  for (const char* const flag : {"--top=1", "--scaling", "--compare=tp=2"}) {
    const Outcome outcome = run_echelon(
        {"plan", "llama-1m", "--machine=h100", "--gpus=2", "--global-batch-size=8", "--seq-len=8192", "--json", flag});
    EXPECT_EQ(Json::parse(outcome.out)["note"], note) << flag;
  }
  EXPECT_FALSE(planned_json({"--machine=h100", "--gpus=2"}).contains("note"));
}

TEST(Plan, ScalingNamesWhatIsMissing) {
  const std::string text =
      run_echelon({"plan", "--model=llama3-8b", "--machine=h100", "--gpus=2", "--global-batch-size=8", "--scaling"})
          .out;
  EXPECT_THAT(text, HasSubstr("numbers of devices on which nothing fits: 1\n"));
  const std::string hurried = planned({"--machine=h100", "--gpus=4", "--scaling", "--seconds=1e-6"}).out;
  EXPECT_THAT(hurried, HasSubstr("devices was ended (--work or --seconds gives it more)"));
}

TEST(Plan, ScalingSaysWhatEfficiencyIsRelativeTo) {
  const Outcome outcome = run_echelon({"plan", "llama2-13b", "--machine=h100", "--gpus=8", "--global-batch-size=64",
                                       "--seq-len=512", "--scaling", "--seconds=1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("efficiency is relative to 4 devices, the fewest on which the model fits"));
}

TEST(Plan, ARangeOfDevicesListsTheirScaling) {
  const std::vector<std::string> range = {"--machine=h100", "--gpus=3..24", "--price=3", "--tokens=1M"};
  const Json points = planned_json(range)["scaling"];
  const int expected[] = {3, 6, 8, 12, 16, 24};  // nodes of 8 in between
  ASSERT_EQ(points.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const int gpus = expected[i];
    EXPECT_EQ(points[i]["gpus"], gpus);
    const Json alone =
        best_plan({"--machine=h100", fmt::format("--gpus={}", gpus), "--top=1", "--price=3", "--tokens=1M"});
    for (const char* field : {"predicted_seconds", "price_per_million_tokens", "tensor_parallel_degree", "training"})
      EXPECT_EQ(points[i][field], alone[field]) << field;
  }
  EXPECT_DOUBLE_EQ(points[5]["efficiency"],
                   points[0]["predicted_seconds"].get<double>() / points[5]["predicted_seconds"].get<double>() / 8);
  EXPECT_THAT(planned(range).out, HasSubstr("a training of 1,954 steps takes"));
  EXPECT_THAT(planned(range).out, HasSubstr("efficiency is relative to 3 devices, the fewest that were asked for"));
}

// Up to 16 counts of whole nodes; where there are more, doublings alone.
TEST(Plan, ARangeOfDevicesHasItsWholeNodes) {
  const auto gpus = [](const std::string& range) {
    std::vector<int> all;
    const Json found = planned_json({"--machine=h100", "--gpus=" + range, "--work=1"});
    for (const Json& point : found["scaling"]) all.push_back(point["gpus"]);
    for (const Json& none : found["gpus_without_plan"]) all.push_back(none);
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(gpus("8..64"), (std::vector<int>{8, 16, 24, 32, 40, 48, 56, 64}));
  EXPECT_EQ(gpus("8..136"), (std::vector<int>{8, 16, 32, 64, 128, 136}));
}

TEST(Plan, ARangeOfDevicesEndsWhereItIsTold) {
  const Json points = planned_json({"--machine=h100", "--gpus=2..6"})["scaling"];
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0]["gpus"], 2);
  EXPECT_EQ(points[1]["gpus"], 4);
  EXPECT_EQ(points[2]["gpus"], 6);
  EXPECT_EQ(planned_json({"--machine=h100", "--gpus=4..4"})["scaling"].size(), 1U);
}

TEST(Plan, RefusesWhatIsNoRangeOfDevices) {
  const auto refusal = [](const std::string& gpus) { return planned({"--machine=h100", "--gpus=" + gpus}).err; };
  EXPECT_THAT(refusal("64..8"), HasSubstr("--gpus=64..8 ends below its start (use 8..64)"));
  EXPECT_THAT(refusal("0..8"), HasSubstr("--gpus=0..8 is not a number of devices (use 1)"));
  for (const char* text : {"8..", "..8", "8-64", "8...64", "many", "8..64..128"})
    EXPECT_THAT(refusal(text), HasSubstr(fmt::format("--gpus={} is not an integer or a range of them", text)));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--price=0"}).err,
              HasSubstr("--price=0 is not a price per device and hour"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2..4", "--output=best.toml"}).err, HasSubstr("list many"));
}

// One layout at three sets of rates: no software is faster than the machine file.
TEST(Plan, ProfileSaysWhoseRatesTimeTheLayouts) {
  const auto seconds_at = [](const std::string& profile) {
    const Json found = planned_json({"--machine=h100", "--gpus=2", "--parallelism.tensor_parallel_degree=2",
                                     "--training.recompute=none", "--profile=" + profile});
    EXPECT_EQ(found["profile"], profile);
    return found["plans"][0]["predicted_seconds"].get<double>();
  };
  const double ideal = seconds_at("ideal");
  EXPECT_LT(ideal, seconds_at("echelon"));
  EXPECT_LT(ideal, seconds_at("megatron-core"));
}

TEST(Plan, FlagsThatSayOneThingTwiceAreRefused) {
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--training.seq_len=32"}).err,
              HasSubstr("--seq-len=64 and --training.seq_len=32 set the same value"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--training.global_batch_size=4"}).err,
              HasSubstr("omit one of them"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--price=inf"}).err, HasSubstr("--price=inf is not a price"));
}

// As in a run.
TEST(Plan, ADegreeOutsideItsRangeIsRefused) {
  for (const char* key : {"tensor", "pipeline", "context", "expert"})
    for (const std::string value : {"0", "-1"}) {
      const std::string name = fmt::format("parallelism.{}_parallel_degree", key);
      const Outcome outcome = planned({"--machine=h100", "--gpus=4", fmt::format("--{}={}", name, value)});
      EXPECT_EQ(outcome.status, 2);
      EXPECT_THAT(outcome.err, HasSubstr(fmt::format("{} = {} is below 1 (use 1)", name, value)));
    }
  for (const char* key : {"parallelism.data_parallel_shard_degree", "training.micro_batch_size"})
    EXPECT_THAT(planned({"--machine=h100", "--gpus=4", fmt::format("--{}=0", key)}).err,
                HasSubstr("is below 1 (use 1)"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=4", "--parallelism.context_parallel_degree=9223372036854775807"}).err,
              HasSubstr("is above 1048576 (use 1048576)"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=4", "--parallelism.prefetch_depth=7"}).err,
              HasSubstr("parallelism.prefetch_depth = 7 is more than the 6 units of a model"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=9223372036854775807"}).err,
              HasSubstr("is more than 1048576 devices (use 1048576)"));
}

TEST(Plan, ADefaultThatSaysNothingLeavesItsKeyOpen) {
  const std::vector<std::string> question = {"--machine=h100", "--gpus=8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), question.begin(), question.end());
    return planned_json(more);
  };
  const Json open = with({});
  for (const char* setting : {"context_parallel_ulysses_degree=0", "hierarchical_context_parallel_sizes=[]",
                              "virtual_stages=0", "expert_tensor_parallel_degree=0"}) {
    const Json plans = with({fmt::format("--parallelism.{}", setting)});
    EXPECT_EQ(plans["configurations"], open["configurations"]) << setting;
    EXPECT_EQ(plans["plans"][0]["predicted_seconds"], open["plans"][0]["predicted_seconds"]) << setting;
  }
}

// Ranks of these sequences hold fewer tokens than the search would give them unasked.
TEST(Plan, AKeyOfContextParallelismAsksForItsRanks) {
  const Json groups = planned_json({"--machine=h100", "--gpus=8", "--parallelism.context_parallel_ulysses_degree=2"});
  for (const Json& plan : groups["plans"]) {
    EXPECT_EQ(plan["context_parallel_method"], "ulysses_ring");
    EXPECT_EQ(plan["context_parallel_ulysses_degree"], 2);
  }
  const Json gathered = best_plan({"--machine=h100", "--gpus=8", "--parallelism.context_parallel_method=all_gather"});
  EXPECT_GT(gathered["context_parallel_degree"], 1);
  EXPECT_THAT(planned({"--machine=h100", "--gpus=8", "--parallelism.context_parallel_ulysses_degree=5"}).err,
              HasSubstr("parallelism.context_parallel_ulysses_degree = 5 does not divide --gpus=8 (use 4)"));
}

// Its sequences are then the model's longest, although a config's default is longer.
TEST(Plan, AModelMayHaveRoomForShortSequencesAlone) {
  const Outcome outcome = run_echelon({"plan", "--model=llama-1m", "--model.max_position_embeddings=48",
                                       "--global-batch-size=2", "--machine=h100", "--gpus=2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 sequences of 48 tokens"));
}

TEST(Plan, ForMemoryTakesLeastAndForTimeIsFastest) {
  const Json small = best_plan({"--machine=h100", "--gpus=2", "--objective=memory"}),
             fast = best_plan({"--machine=h100", "--gpus=2"});
  EXPECT_LT(small["predicted_memory_bytes"], fast["predicted_memory_bytes"]);
  EXPECT_GT(small["predicted_seconds"], fast["predicted_seconds"]);
}

TEST(Plan, ForCostHasTheCheapestTokenOfAllNumbersOfDevices) {
  const std::vector<std::string> asked = {"--machine=h100", "--gpus=4", "--objective=cost"};
  EXPECT_THAT(planned(asked).err, HasSubstr("--price=2.5"));
  const Json cheapest = best_plan({asked[0], asked[1], asked[2], "--price=3"});
  const auto cost = [](const Json& plan) {
    return 3.0 * plan["gpus"].get<double>() * plan["predicted_seconds"].get<double>() / 3600 / (8 * 64) * 1e6;
  };
  EXPECT_NEAR(cheapest["price_per_million_tokens"], cost(cheapest), 1e-9 * cost(cheapest));
  double least = cost(cheapest) * 2;
  for (const int gpus : {1, 2, 4})
    least = std::min(least, cost(best_plan({"--machine=h100", fmt::format("--gpus={}", gpus), "--top=1"})));
  EXPECT_NEAR(cost(cheapest), least, 1e-9 * least);
}

TEST(Plan, ForCostShowsPricesOnItsPage) {
  const ScratchFolder scratch;
  const std::string page = scratch / "plan.html";
  const auto page_of = [&](const std::string& objective) {
    const Outcome outcome = planned({"--machine=h100", "--gpus=4", "--price=3", objective, "--html=" + page});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return get(page);
  };
  EXPECT_THAT(page_of("--objective=cost"),
              testing::AllOf(HasSubstr(">a million tokens<"), HasSubstr(" %) for a million tokens")));
  EXPECT_THAT(page_of("--objective=time"), testing::Not(HasSubstr(">a million tokens<")));
}

TEST(Plan, WritesAConfigWithItsOrder) {
  const ScratchFolder scratch;
  const std::string config = scratch / "plan.toml";
  const Json plan = best_plan({"--machine=h100", "--gpus=2", "--parallelism.order=pp-dp-tp", "--output=" + config});
  EXPECT_EQ(plan["order"], "pp-dp-tp");
  EXPECT_EQ(plan["config"], get(config));
  EXPECT_THAT(get(config), HasSubstr("order = \"pp-dp-tp\""));
  const Outcome inspected = run_echelon({"inspect", config, "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_EQ(Json::parse(inspected.out)["order"], "pp-dp-tp");
}

// Eight replicas of each stage on a node sum their gradients over its links, and only boundaries go between nodes.
TEST(Plan, SaysWhyReplicasLieInsideOfNodes) {
  const ScratchFolder scratch;
  const std::string config = scratch / "plan.toml";
  const std::vector<std::string> asked = {"--model=llama3-8b",
                                          "--machine=h100",
                                          "--gpus=32",
                                          "--global-batch-size=64",
                                          "--seq-len=2048",
                                          "--parallelism.tensor_parallel_degree=1",
                                          "--parallelism.pipeline_parallel_degree=4",
                                          "--parallelism.data_parallel_shard_degree=1",
                                          "--parallelism.pipeline_parallel_schedule=1F1B",
                                          "--top=1",
                                          "--output=" + config};
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan"};
    arguments.insert(arguments.end(), asked.begin(), asked.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const Json found = Json::parse(run({"--json"}));
  EXPECT_EQ(found["plans"][0]["order"], "tp-cp-dp-pp");
  EXPECT_THAT(get(config), HasSubstr("order = \"tp-cp-dp-pp\""));
  const Outcome simulated = run_echelon({"simulate", config, "--machine=h100", "--json"});
  EXPECT_EQ(Json::parse(simulated.out)["predicted_seconds"], found["plans"][0]["predicted_seconds"]);
  const Json by_default =
      Json::parse(run({"--json", "--parallelism.order=tp-cp-dp_shard-pp-dp_replicate"}))["plans"][0];
  EXPECT_LT(found["plans"][0]["predicted_seconds"], by_default["predicted_seconds"]);
  EXPECT_THAT(run({}), testing::AllOf(HasSubstr("Why the ranks are in the order tp-cp-dp-pp"),
                                      HasSubstr("a node holds of each axis: dp_replicate 8; in the default order "
                                                "tp-cp-dp_shard-pp-dp_replicate it would hold: pp 4, dp_replicate 2")));
}

// The machine that the config names for its peaks, with as many ranks as it has cores, or more.
TEST(Plan, WithoutAMachineIsForTheOneOfTheConfig) {
  const ScratchFolder scratch;
  const std::string machine = scratch / "machine.toml";
  ASSERT_EQ(run_echelon({"bench", "--seconds=0.01", "--rounds=0", "--output=" + machine}).status, 0);
  const Json found = planned_json(
      {"--metrics.machine=" + machine, "--training.micro_batch_size=1", "--training.recompute=none", "--gpus=4"});
  EXPECT_GT(found["configurations"], 10);
  EXPECT_EQ(found["plans"][0]["gpus"], 4);
  EXPECT_THAT(planned({"--metrics.machine=" + machine, "--gpus=5000"}).err, HasSubstr("(use 4096)"));
}

}  // namespace
}  // namespace echelon
