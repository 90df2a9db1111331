// echelon simulate from the command line.
#include "blueprint/blueprint.h"
#include "cli/program.h"
#include "pages/train_prediction.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

Outcome simulated(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"simulate",
                                        "--model.preset=llama3-8b",
                                        "--training.dtype=bfloat16",
                                        "--training.seq_len=4096",
                                        "--training.global_batch_size=64",
                                        "--parallelism.tensor_parallel_degree=4",
                                        "--parallelism.pipeline_parallel_degree=2",
                                        "--parallelism.data_parallel_shard_degree=8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_echelon(arguments);
}

double sum_of(const nlohmann::json& parts) {
  double sum = 0;
  for (const auto& part : parts) sum += part.is_object() ? sum_of(part) : part.get<double>();
  return sum;
}

// Megatron-LM and torchtitan report float8 as a share of bfloat16's peak too.
TEST(Simulate, SaysWhosePeakMfuOfFloat8IsAShareOf) {
  const std::string narrow = simulated({"--machine=h100", "--training.linear_dtype=float8"}).out;
  EXPECT_THAT(narrow, testing::ContainsRegex("[0-9]+ % MFU of bfloat16's peak"));
  EXPECT_THAT(narrow, testing::ContainsRegex("MFU [0-9.]+ % of bfloat16's peak"));
  EXPECT_THAT(simulated({"--machine=h100"}).out, testing::Not(HasSubstr("of bfloat16's peak")));
}

TEST(Simulate, JsonHasPartsThatAddUpAndTheNamesOfTrain) {
  const Outcome outcome =
      simulated({"--machine=h100", "--json", "--slow=rank=17:1.3", "--mtbf-hours=3", "--checkpoint-seconds=30"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  const double seconds = json["predicted_seconds"];
  EXPECT_NEAR(sum_of(json["parts"]), seconds, 1e-9 * seconds);
  for (const auto& rank : json["ranks"]) EXPECT_NEAR(sum_of(rank["parts"]), seconds, 1e-9 * seconds);
  EXPECT_EQ(json["stages"].size(), 2U);
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["tokens"], 64 * 4096);
  EXPECT_EQ(json["world_size"], 64);
  EXPECT_GT(json["failures"]["goodput"], 0.5);
  for (const char* name : {"step_seconds", "tokens_per_second", "tflops", "mfu", "memory_peak_bytes", "comm_bytes"})
    EXPECT_TRUE(json.contains(name)) << name;
}

TEST(Simulate, TextSaysWhereTheTimeGoes) {
  const Outcome outcome = simulated({"--machine=h100"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words :
       {"64 ranks = pp 2 x dp_shard 8 x tp 4", "without the masked pairs of causal attention",
        "exposed communication, tp", "bubble", "optimizer", "fits", "sent in a step", "as echelon works",
        "at the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and H100, since "
        "Echelon was not measured on a GPU",
        "best published on H100 at this size: 58 %"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Outcome ideal = simulated({"--machine=h100", "--profile=ideal", "--json"});
  const auto seconds_of = [](const Outcome& of) {
    return nlohmann::json::parse(of.out)["predicted_seconds"].get<double>();
  };
  EXPECT_LT(seconds_of(ideal), 0.95 * seconds_of(simulated({"--machine=h100", "--json"})));
}

TEST(Simulate, WritesTraceAndDrawing) {
  const std::string folder = scratch_folder() + "echelon_simulate";
  std::filesystem::create_directories(folder);
  const Outcome outcome =
      simulated({"--machine=h100", "--trace=" + folder + "/step.json", "--svg=" + folder + "/step.svg"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::ifstream trace(folder + "/step.json"), svg(folder + "/step.svg");
  EXPECT_GT(nlohmann::json::parse(trace)["traceEvents"].size(), 32U);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(svg), {}), HasSubstr("<svg"));
}

TEST(Simulate, BadInputIsOneSentence) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--machine="}, "--machine is empty"},
      {{"--machine=h100", "--machine=a100-80"}, "a second value of --machine"},
      {{"--machine=h1000"}, "did you mean h100?"},
      {{"--machine=h100", "--profile=none"}, "none"},
      {{"--machine=h100", "--slow=rank=64:2"}, "(use 63)"},
      {{"--machine=h100", "--slow=rank=1:0"}, "(use 1)"},
      {{"--machine=h100", "--slow=fast"}, "(use --slow rank=17:1.3)"},
      {{"--machine=h100", "--slow=1:2", "--slow=rank=1:3"}, "twice"},
      {{"--machine=h100", "--mtbf-hours=0"}, "(use 1)"},
      {{"--machine=h100", "--mtbf-hours=1", "--checkpoint-seconds=-1"}, "(use 0)"},
      {{"--machine=h100", "--mtbf-hours=1e300", "--checkpoint-seconds=1"}, "(use 1000000)"},
      {{"--machine=h100", "--mtbf-hours=3"}, "needs --checkpoint-seconds"},
      {{"--machine=h100", "--mtbf-hours=0.01", "--checkpoint-seconds=3600"}, "leaves no time to train"},
      {{"--machine=h100", "--slow=1:1e300"}, "(use 1000000)"},
      {{"--machine=h100", "--svg="}, "--svg is empty"},
      {{"--machine=h100", "--svg=step", "--trace=step"}, "is also the file of"},
      {{"--rows=table.csv"}, "--model.preset=llama3-8b is for a single run"},
      {{"--machine=h100", "--checkpoint-seconds=1"}, "need --mtbf-hours"},
      {{"--machine=h100", "--svg=/nowhere/step.svg"}, "cannot be written"},
      {{"--machine=h100", "--documents=nowhere.idx"}, "--documents=nowhere.idx: there is no such file"},
      {{"--machine=h100", "--documents=9,0"}, "--documents=9,0 is not a list of lengths"},
  };
  for (const auto& [more, words] : cases) {
    const Outcome outcome = simulated(more);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

Outcome simulated_mixture(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"simulate",
                                        "--machine=h100",
                                        "--model.preset=mixtral-8x7b",
                                        "--training.dtype=bfloat16",
                                        "--training.global_batch_size=16",
                                        "--parallelism.data_parallel_shard_degree=8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_echelon(arguments);
}

// Nobody set parallelism.ranks_per_node.
TEST(Simulate, SaysThatAMachineHasNoNodesForTwoHops) {
  const std::string hierarchical = "--parallelism.expert_dispatch=hierarchical";
  const Outcome outcome = simulated_mixture({"--parallelism.expert_parallel_degree=8", hierarchical});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'hierarchical' sends the rows of 8 ranks over nodes with several of them each, "
                                     "and the machine has 8 devices on a node (use 'direct')"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("ranks_per_node")));
}

TEST(Simulate, NamesBothPartsOfExperts) {
  const Outcome both =
      simulated_mixture({"--parallelism.expert_parallel_degree=4", "--parallelism.expert_tensor_parallel_degree=2"});
  EXPECT_THAT(both.out, HasSubstr("experts over 4, features of experts over 2"));
  const Outcome features = simulated_mixture({"--parallelism.expert_tensor_parallel_degree=2"});
  EXPECT_THAT(features.out, HasSubstr("ZeRO-1, features of experts over 2"));
}

std::string written(const std::string& name, const std::string& text) {
  const std::string path = scratch_folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Ids may be any text, and an invalid row does not stop the others.
TEST(Simulate, RowsAreAListWithTheIdsOfTheTable) {
  const std::string run = ",24,2304,24,2048,A100-80GB-SXM,32,512,",
                    table = "id,layers,hidden,heads,seq,gpu,gpus,gbs,iter_time_s,schedule\n";
  std::string text = table;
  const std::vector<std::string> ids = {"a", "\"b, \"\"c\"\"\"", "\xE2\x98\x83", "caf\xE9", "", "a"};
  for (const std::string& id : ids) text += id + run + ",\n";
  text += "wrong,24,2304,24,2048,,32,512,,\n";
  const std::string path = written("rows.csv", text);
  const Outcome outcome = run_echelon({"simulate", "--rows", path, "--json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("1 of 7 rows cannot be predicted; the first has id 'wrong': "));
  const nlohmann::json rows = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 7U);
  const std::vector<std::string> read = {"a", "b, \"c\"", "\xE2\x98\x83", "caf\xEF\xBF\xBD", "", "a"};
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(rows[i]["id"], read[i]);
    EXPECT_EQ(rows[i]["predicted_seconds"], rows[0]["predicted_seconds"]);
    EXPECT_EQ(rows[i]["fits"], true);
  }
  EXPECT_THAT(rows[6]["error"].get<std::string>(), HasSubstr("gpu is blank"));
  for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--rows=" + path, "--slow=1:2"}, "--slow is for a single run"},
           {{"--rows=" + path, "--machine=h100"}, "--machine is for a single run"},
           {{"--rows=" + path, "--profile=megatron"}, "did you mean megatron-core?"},
           {{"--rows=" + written("semicolons.csv", "id;layers;hidden\na;1;2\n")}, "has no column 'layers'"},
           {{"--rows=" + written("header.csv", table)}, "has the names of columns and no run below them"},
           {{"--rows=" + written("train.bin", std::string("\4\1\0, 0\n", 7))}, "is no table of text"},
       }) {
    std::vector<std::string> arguments = {"simulate"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome refused = run_echelon(arguments);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr(words));
  }
}

// As in plan and tune: the machine of the config, such as one that echelon bench wrote.
TEST(Simulate, WithoutAMachineIsOnTheOneOfTheConfig) {
  const std::string machine = scratch_folder() + "/simulate_machine.toml";
  ASSERT_EQ(run_echelon({"bench", "--seconds=0.01", "--rounds=0", "--output=" + machine}).status, 0);
  const std::vector<std::string> run = {"simulate", "--model.preset=llama-1m",
                                        "--parallelism.pipeline_parallel_degree=2", "--json"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> arguments = run;
    arguments.push_back(flag + "=" + machine);
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json of_config = with("--metrics.machine"), named = with("--machine");
  EXPECT_GT(of_config["predicted_seconds"], 0);
  EXPECT_EQ(of_config["parts"], named["parts"]);
  const std::string trace = scratch_folder() + "/host_step.json", svg = scratch_folder() + "/host_step.svg";
  const Outcome drawn =
      run_echelon({run[0], run[1], run[2], "--machine=" + machine, "--trace=" + trace, "--svg=" + svg});
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  std::ifstream events(trace);
  // Two passes of eight microbatches on two ranks, and transfers.
  EXPECT_GT(nlohmann::json::parse(events)["traceEvents"].size(), 64U);
}

// A run on GPUs predicts its steps at the rates of `simulate` and `plan`, not at those of the machine file.
TEST(Simulate, HasTheSecondsThatARunOnGpusPredicts) {
  const std::vector<std::string> keys = {"--model.preset=gpt2-124m",
                                         "--training.dtype=bfloat16",
                                         "--training.device=cuda",
                                         "--training.global_batch_size=16",
                                         "--parallelism.data_parallel_shard_degree=4",
                                         "--metrics.machine=h100"};
  const TrainPrediction prediction =
      predict_on_gpus(Blueprint(read_run_config({.path = {}, .arguments = keys, .read_model = {}})));
  const auto simulated_seconds = [&](const std::string& profile) {
    std::vector<std::string> command = {"simulate", "--json", "--profile=" + profile};
    command.insert(command.end(), keys.begin(), keys.end());
    return nlohmann::json::parse(run_echelon(command).out).at("predicted_seconds").get<double>();
  };
  ASSERT_TRUE(prediction.predicted_step_seconds);
  EXPECT_EQ(*prediction.predicted_step_seconds, simulated_seconds("echelon"));
  EXPECT_GT(*prediction.predicted_step_seconds, simulated_seconds("ideal"));
  EXPECT_EQ(prediction.source,
            "h100, at the rates that Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP have in common on A100 and "
            "H100, since Echelon was not measured on a GPU");
}

// 16,381 tokens on four ranks are 4,096 rows each, of which three ranks do not need one.
TEST(Simulate, AndInspectHavePaddingAsACategory) {
  const std::vector<std::string> keys = {"llama-1m",
                                         "--model.max_position_embeddings=16384",
                                         "--training.seq_len=16381",
                                         "--training.dtype=bfloat16",
                                         "--training.global_batch_size=2",
                                         "--parallelism.context_parallel_degree=4"};
  const auto output_of = [&](std::vector<std::string> command) {
    command.insert(command.begin() + 1, keys.begin(), keys.end());
    const Outcome outcome = run_echelon(command);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const auto simulated = nlohmann::json::parse(output_of({"simulate", "--machine=h100", "--json"}))["stages"][0],
             inspected = nlohmann::json::parse(output_of({"inspect", "--json"}))["pipeline_ranks"][0];
  EXPECT_EQ(simulated["memory_bytes"]["padding_rows"], inspected["memory_bytes"]["padding_rows"]);
  EXPECT_GT(inspected["memory_bytes"]["padding_rows"].get<std::int64_t>(), 0);
  EXPECT_GT(simulated["memory_at_peak_bytes"]["padding_rows"].get<std::int64_t>(), 0);
  EXPECT_THAT(output_of({"simulate", "--machine=h100"}), HasSubstr("padding_rows"));
  EXPECT_THAT(output_of({"inspect"}), HasSubstr("padding_rows"));
}

/// The fields that a row and a single run have in common.
nlohmann::json common_fields(const nlohmann::json& run) {
  nlohmann::json common;
  for (const char* field : {"predicted_seconds", "predicted_memory_bytes", "mfu", "fits", "documents"})
    common[field] = run.at(field);
  return common;
}

// A row of packed data is the run with the same lengths, given for all rows or in a column of its own.
TEST(Simulate, RowsOfDocumentsAreThoseOfSingleRuns) {
  const std::string columns = "id,layers,hidden,heads,ffn,mlp,vocab,seq,gpu,gpus,cp,gbs,documents\n",
                    run = "a,2,512,4,1536,swiglu,32768,16384,A100-80GB-SXM,4,4,8,", lengths = "1500:3000";
  const std::string of_all = written("documents.csv", columns + run + "\n"),
                    of_rows = written("own_documents.csv", columns + run + lengths + "\n" + run + "9000:1\n");
  for (const std::string profile : {"--profile=echelon", "--profile=megatron-core"}) {
    const Outcome single = run_echelon({"simulate",
                                        "--model.model_type=llama",
                                        "--model.hidden_size=512",
                                        "--model.num_hidden_layers=2",
                                        "--model.num_attention_heads=4",
                                        "--model.num_key_value_heads=4",
                                        "--model.intermediate_size=1536",
                                        "--model.vocab_size=32768",
                                        "--model.max_position_embeddings=16384",
                                        "--training.seq_len=16384",
                                        "--training.global_batch_size=8",
                                        "--training.micro_batch_size=1",
                                        "--training.dtype=bfloat16",
                                        "--training.device=cpu",
                                        "--parallelism.context_parallel_degree=4",
                                        "--data.reset_attention_mask=true",
                                        "--machine=a100-80",
                                        "--documents=" + lengths,
                                        profile,
                                        "--json"});
    ASSERT_EQ(single.status, 0) << single.err;
    const nlohmann::json expected = common_fields(nlohmann::json::parse(single.out));
    EXPECT_LT(expected["documents"]["pairs_share"], 0.5);
    const Outcome flag = run_echelon({"simulate", "--rows=" + of_all, "--documents=" + lengths, profile, "--json"}),
                  column = run_echelon({"simulate", "--rows=" + of_rows, profile, "--json"}),
                  both = run_echelon({"simulate", "--rows=" + of_rows, "--documents=100", profile, "--json"});
    EXPECT_EQ(common_fields(nlohmann::json::parse(flag.out)[0]), expected);
    EXPECT_EQ(common_fields(nlohmann::json::parse(column.out)[0]), expected);
    EXPECT_GT(nlohmann::json::parse(column.out)[1]["predicted_seconds"], expected["predicted_seconds"]);
    EXPECT_EQ(both.out, column.out) << "a row's own documents come first";
    const auto row = nlohmann::json::parse(flag.out)[0];
    EXPECT_LT(row["interval_seconds"][0], row["predicted_seconds"]);
    EXPECT_GT(row["interval_seconds"][1], row["predicted_seconds"]);
  }
  const auto pairs_share = [&](const std::string& documents) -> double {
    const Outcome outcome = run_echelon({"simulate", "--rows=" + of_all, "--documents=" + documents, "--json"});
    return nlohmann::json::parse(outcome.out)[0]["documents"]["pairs_share"];
  };
  EXPECT_EQ(pairs_share("1024,1024"), pairs_share("1024:0")) << "a list, over and over";
  EXPECT_GT(pairs_share("1024,15360"), pairs_share("8192,8192"));
  EXPECT_THAT(run_echelon({"simulate", "--rows=" + of_rows}).out, HasSubstr("% of the pairs of whole sequences"));
  const Outcome refused = run_echelon({"simulate", "--rows=" + of_all, "--documents=long"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--documents=long is neither an .idx file nor a mean length"));
}

}  // namespace
}  // namespace echelon
