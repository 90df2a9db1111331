// echelon plan from the command line.
#include "checkpoint/scratch_folder.h"
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Outcome planned(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"plan", "--model=llama-1m", "--global-batch-size=8", "--seq-len=64"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_echelon(arguments);
}

Json planned_json(std::vector<std::string> more) {
  more.emplace_back("--json");
  const Outcome outcome = planned(more);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

Json best_plan(const std::vector<std::string>& more) { return planned_json(more)["plans"][0]; }

TEST(Plan, ScalingListsTheBestStepOverMoreAndMoreDevicesAndDrawsIt) {
  const ScratchFolder scratch;
  const std::string svg = scratch / "scaling.svg";
  const Json scaling = planned_json({"--machine=h100", "--gpus=4", "--scaling", "--svg=" + svg});
  EXPECT_EQ(scaling["rates"], "the rates that measured software has in common");
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

// 8 sequences of 64 tokens are a step, so that 1 M tokens are 1,954 steps.
TEST(Plan, TokensHaveDaysAndAPrice) {
  const Json plan = best_plan({"--machine=h100", "--gpus=2", "--tokens=1M", "--price=3"});
  const double days = plan["predicted_seconds"].get<double>() * 1954 / 86400;
  EXPECT_EQ(plan["training"]["steps"], 1954);
  EXPECT_DOUBLE_EQ(plan["training"]["days"], days);
  EXPECT_NEAR(plan["training"]["price"].get<double>() / (days * 24 * 2 * 3), 1, 1e-9);
  const std::string text =
      planned({"--machine=h100", "--gpus=2", "--tokens=1M", "--mtbf=9", "--checkpoint-seconds=1"}).out;
  EXPECT_THAT(text, HasSubstr("1e+06 tokens are 1954 steps"));
  EXPECT_THAT(text, HasSubstr("the job fails every 4.5 hours"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--tokens=much"}).err, HasSubstr("is not a number of tokens"));
}

// A step of the plan is of 512 tokens; so many whole steps are in an hour.
TEST(Plan, HoursHaveTokens) {
  const Json plan = best_plan({"--machine=h100", "--gpus=2", "--hours=1", "--price=3"});
  const double steps = std::floor(3600 / plan["predicted_seconds"].get<double>());
  EXPECT_EQ(plan["training"]["steps"], steps);
  EXPECT_EQ(plan["training"]["tokens"], steps * 512);
  EXPECT_NEAR(plan["training"]["price"].get<double>(), 2 * 3, 0.001);
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--hours=1"}).out, HasSubstr("1 hours are"));
}

// Of 1, 2 and 4 devices those whose days are within the hours; asked for a bit more and a bit less than two take.
TEST(Plan, HoursAndTokensNameTheFewestDevices) {
  const auto asked = [](double hours) {
    return std::vector<std::string>{"--machine=h100", "--gpus=1..4", "--tokens=1B", fmt::format("--hours={}", hours)};
  };
  const Json points = planned_json(asked(1))["scaling"];
  const double hours = points[1]["training"]["days"].get<double>() * 24;
  ASSERT_GT(points[0]["training"]["days"].get<double>() * 24, hours * 1.01);
  const Json enough = planned_json(asked(hours * 1.001)), less = planned_json(asked(hours * 0.999));
  EXPECT_EQ(enough["fewest_gpus_within_hours"], 2);
  EXPECT_EQ(less["fewest_gpus_within_hours"], 4);
  EXPECT_FALSE(enough["scaling"][0]["training"]["within_hours"]);
  EXPECT_TRUE(enough["scaling"][1]["training"]["within_hours"]);
  EXPECT_FALSE(planned_json(asked(hours / 100)).contains("fewest_gpus_within_hours"));
  EXPECT_THAT(planned(asked(hours * 1.001)).out,
              HasSubstr("the fewest of these devices that train 1e+09 tokens within"));
  EXPECT_THAT(planned(asked(hours / 100)).out, HasSubstr("none of these numbers of devices trains"));
}

TEST(Plan, ARangeOfDevicesListsTheirScaling) {
  const std::vector<std::string> range = {"--machine=h100", "--gpus=3..24", "--price=3", "--tokens=1M"};
  const Json points = planned_json(range)["scaling"];
  ASSERT_EQ(points.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const int gpus = 3 << i;
    EXPECT_EQ(points[i]["gpus"], gpus);
    const Json alone =
        best_plan({"--machine=h100", fmt::format("--gpus={}", gpus), "--top=1", "--price=3", "--tokens=1M"});
    for (const char* field : {"predicted_seconds", "price_per_million_tokens", "tensor_parallel_degree", "training"})
      EXPECT_EQ(points[i][field], alone[field]) << field;
  }
  EXPECT_DOUBLE_EQ(points[3]["efficiency"],
                   points[0]["predicted_seconds"].get<double>() / points[3]["predicted_seconds"].get<double>() / 8);
  EXPECT_THAT(planned(range).out, HasSubstr("a training of 1954 steps takes"));
  EXPECT_THAT(planned(range).out, HasSubstr("efficiency is relative to 3 devices, the fewest that were asked for"));
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
  EXPECT_EQ(compared["rates"], "the rates that measured software has in common");
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

TEST(Plan, RefusesWhatIsNoLayoutToCompare) {
  const auto refusal = [](const std::string& layout) {
    return planned({"--machine=h100", "--gpus=4", "--compare=" + layout}).err;
  };
  EXPECT_THAT(refusal("tp"), HasSubstr("--compare=tp is not a layout (example: --compare=tp=8,pp=4)"));
  EXPECT_THAT(refusal("tp=2,=4"), HasSubstr("is not a layout"));
  EXPECT_THAT(refusal("training.steps=4"), HasSubstr("--training.steps=4 is no choice of the planner"));
  EXPECT_THAT(refusal("tp=many"), HasSubstr("parallelism.tensor_parallel_degree"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2..4", "--compare=tp=2"}).err, HasSubstr("omit --scaling"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=4", "--compare=tp=1", "--compare=tp=2", "--compare=tp=4"}).err,
              HasSubstr("--compare is given 3 times"));
}

TEST(Plan, FlagsThatSayOneThingTwiceAreRefused) {
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--training.seq_len=32"}).err,
              HasSubstr("--seq-len=64 and --training.seq_len=32 set the same value"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--training.global_batch_size=4"}).err,
              HasSubstr("omit one of them"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--price=inf"}).err, HasSubstr("--price=inf is not a price"));
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
