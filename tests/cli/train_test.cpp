// From text to a model and back to text, all through the real program.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

namespace echelon {
namespace {

using testing::HasSubstr;

/// The test's own folder with a small corpus of this tree's sources.
class Program : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder() + "/echelon-" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    const Outcome outcome =
        run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output", corpus(), "--vocab-size=300",
                     "--training-sample-bytes=20000", "--validation-fraction=0.2"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }

  std::string corpus() const { return folder_ + "/corpus"; }
  std::string out() const { return folder_ + "/out"; }

  std::vector<std::string> train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train",
                                          "--model.preset=llama-1m",
                                          "--model.vocab_size=300",
                                          "--model.num_hidden_layers=2",
                                          "--training.steps=3",
                                          "--training.seq_len=32",
                                          "--training.global_batch_size=4",
                                          "--data.path=" + corpus() + "/train",
                                          "--data.validation_path=" + corpus() + "/validation",
                                          "--checkpoint.tokenizer=" + corpus() + "/tokenizer.json",
                                          "--output.dir=" + out()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::string folder_;
};

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

TEST_F(Program, TrainsEvaluatesAndGenerates) {
  const Outcome trained =
      run_echelon(train({"--parallelism.tensor_parallel_degree=2", "--parallelism.pipeline_parallel_degree=2"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  for (const char* part : {"step:  1  loss:", "step:  3  loss:", "validate step:  3", "unigram entropy", "eta: 0s",
                           "mfu: N/A: the peak of this machine is unknown; --metrics.machine=FILE", "  lr: "})
    EXPECT_THAT(trained.out, HasSubstr(part));
  std::ifstream metrics(out() + "/metrics.jsonl");
  std::ostringstream text;
  text << metrics.rdbuf();
  const auto objects = json_lines(text.str());
  ASSERT_EQ(objects.size(), 4U);  // three steps and the evaluation
  EXPECT_NEAR(objects[0]["loss"].get<double>(), std::log(300), 0.5);
  EXPECT_EQ(objects[2]["step"], 3);
  EXPECT_EQ(objects[2]["predicted_memory_bytes"], objects[2]["memory_peak_bytes"]);
  EXPECT_GT(objects[2]["predicted_step_seconds"].get<double>(), 0);

  // A checkpoint is as good as the model.
  std::vector<std::string> evaluations, texts;
  for (const std::string& model : {out() + "/model", out() + "/checkpoint/step-3"}) {
    const Outcome evaluated =
        run_echelon({"eval", "--model", model, "--data", corpus() + "/validation", "--training.seq_len=32", "--json"});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_THAT(json_lines(evaluated.out)[0]["device"].get<std::string>(), HasSubstr("; matmuls: float32 "));
    const auto loss = json_lines(evaluated.out)[0]["validation_loss"];
    EXPECT_NEAR(loss.get<double>(), std::log(300), 0.5);
    evaluations.push_back(loss.dump());
    const std::vector<std::string> generate = {"generate",           "--model", model, "--prompt=#include",
                                               "--max-new-tokens=8", "--seed=3"};
    const Outcome generated = run_echelon(generate);
    ASSERT_EQ(generated.status, 0) << generated.err;
    EXPECT_THAT(generated.out, testing::StartsWith("#include"));
    EXPECT_EQ(run_echelon(generate).out, generated.out);
    texts.push_back(generated.out);
  }
  EXPECT_EQ(evaluations[0], evaluations[1]);
  EXPECT_EQ(texts[0], texts[1]);
}

// A sequence is 32 tokens and the target after them; 3 steps take 12 sequences.
TEST_F(Program, SaysHowOftenItReadsItsData) {
  const auto tokens = json_lines(run_echelon({"inspect", corpus() + "/train", "--json"}).out)[0]["num_tokens"];
  const std::int64_t sequences = (tokens.get<std::int64_t>() - 2) / 32 + 1;
  const Outcome outcome = run_echelon(train({"--checkpoint.enable=false"}));
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("data: {} tokens in {} sequences of 32; 3 steps x 4 sequences = ",
                                                 tokens.get<std::int64_t>(), sequences)));
  std::ifstream metrics(out() + "/metrics.jsonl");
  std::string line;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(metrics, line));
    EXPECT_DOUBLE_EQ(nlohmann::json::parse(line)["epoch"].get<double>(), 4.0 * step / static_cast<double>(sequences));
  }
}

TEST_F(Program, WarnsOfDataShorterThanASequence) {
  std::ofstream(folder_ + "/short.txt") << "int main";
  ASSERT_EQ(run_echelon({"prepare", folder_ + "/short.txt", "--tokenizer=" + corpus() + "/tokenizer.json",
                         "--output=" + folder_ + "/short", "--validation-fraction=0"})
                .status,
            0);
  const Outcome outcome = run_echelon(train({"--data.path=" + folder_ + "/short/train", "--checkpoint.enable=false"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(" in 1 sequence of 32; 3 steps x 4 sequences = 12.00 epochs\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("less than one sequence of training.seq_len = 32: every sequence is the same text"));
}

// Before an operation of its sizes is measured, which would take minutes and all memory.
TEST_F(Program, RefusesAModelThatDoesNotFitBeforeItMeasures) {
  const Outcome outcome = run_echelon(train({"--model.hidden_size=200000"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("the run needs more than "),
                                          HasSubstr(" GiB: make model.hidden_size = 200000, ")));
  EXPECT_LT(outcome.peak_memory_bytes, std::int64_t{1} << 30);
}

// Of each of the layers with experts: every expert has as many rows, on any layout with the same choices.
TEST_F(Program, ForcesABalanceAndSaysSo) {
  std::string losses;
  for (const char* ep : {"1", "2"}) {
    const Outcome outcome = run_echelon(
        {"train", "--model.preset=mixtral-30m", "--model.vocab_size=300", "--model.num_hidden_layers=2",
         "--model.hidden_size=64", "--model.moe_intermediate_size=64", "--training.seq_len=32",
         "--training.global_batch_size=8", "--training.steps=2", "--parallelism.data_parallel_shard_degree=2",
         std::string("--parallelism.expert_parallel_degree=") + ep, "--moe.force_balance=true",
         "--checkpoint.enable=false", "--data.path=" + corpus() + "/train", "--output.dir=" + out()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::ifstream metrics(out() + "/metrics.jsonl");
    std::ostringstream text;
    text << metrics.rdbuf();
    const auto last_step = json_lines(text.str()).back();
    EXPECT_EQ(last_step["moe"]["max_load"].get<std::vector<double>>(), std::vector<double>(2, 1.0));
    EXPECT_EQ(last_step["moe"]["force_balance"], true);
    EXPECT_THAT(outcome.out + outcome.err, testing::HasSubstr("balance: forced"));
    const std::string loss = last_step["loss"].dump();
    EXPECT_TRUE(losses.empty() || std::abs(std::stod(losses) - std::stod(loss)) < 1e-4) << losses << " " << loss;
    losses = loss;
    std::filesystem::remove_all(out());
  }
}

// What a run logs of its router is what a prediction starts from.
TEST_F(Program, LogsTheLoadsOfExpertsForPredictions) {
  const std::vector<std::string> model = {"--model.preset=mixtral-30m",
                                          "--model.vocab_size=300",
                                          "--model.num_hidden_layers=2",
                                          "--model.hidden_size=64",
                                          "--model.moe_intermediate_size=64",
                                          "--training.seq_len=32",
                                          "--training.global_batch_size=8",
                                          "--parallelism.data_parallel_shard_degree=2",
                                          "--parallelism.expert_parallel_degree=2"};
  std::vector<std::string> trained = {"train",
                                      "--training.steps=2",
                                      "--data.path=" + corpus() + "/train",
                                      "--output.dir=" + out(),
                                      "--checkpoint.enable=false",
                                      "--moe.dispatch_bound=0.3",
                                      "--moe.z_loss_coeff=0.01",
                                      "--metrics.expert_loads=true"};
  trained.insert(trained.end(), model.begin(), model.end());
  const Outcome training = run_echelon(trained);
  ASSERT_EQ(training.status, 0) << training.err;
  std::ifstream metrics(out() + "/metrics.jsonl");
  std::ostringstream text;
  text << metrics.rdbuf();
  double over_mean = 0;
  const auto last_step = json_lines(text.str()).back();
  std::vector<double> rank_loads;
  for (const auto& layer : last_step["moe"]["loads"]) {
    const auto rows = layer.get<std::vector<std::int64_t>>();
    ASSERT_EQ(rows.size(), 8U);
    const double first = static_cast<double>(std::accumulate(rows.begin(), rows.begin() + 4, std::int64_t{0})),
                 all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    EXPECT_EQ(all, 8 * 32 * 2);
    over_mean += std::max(first, all - first) / all;  // two layers, of two ranks the most loaded
    rank_loads.push_back(2 * std::max(first, all - first) / all);
  }
  EXPECT_EQ(last_step["moe"]["max_rank_load"].get<std::vector<double>>(), rank_loads);
  EXPECT_GT(last_step["moe"]["rounds"], 2);
  EXPECT_GT(last_step["moe"]["rows_again"], 0);
  const auto rounds = last_step["moe"]["rounds_of_layers"].get<std::vector<double>>();
  const auto again = last_step["moe"]["rows_again_of_layers"].get<std::vector<std::int64_t>>();
  ASSERT_EQ(std::pair(rounds.size(), again.size()), std::pair(2UL, 2UL));
  EXPECT_EQ((rounds[0] + rounds[1]) / 2, last_step["moe"]["rounds"]);
  EXPECT_EQ(again[0] + again[1], last_step["moe"]["rows_again"]);
  const auto z_losses = last_step["moe"]["z_loss_of_layers"].get<std::vector<double>>();
  ASSERT_EQ(z_losses.size(), 2U);
  EXPECT_GT(std::min(z_losses[0], z_losses[1]), 0);
  EXPECT_EQ(z_losses[0] + z_losses[1], last_step["moe"]["z_loss"]);
  EXPECT_FALSE(last_step["moe"].contains("seq_aux_loss_of_layers"));
  EXPECT_THAT(training.out + training.err, testing::HasSubstr("  rounds: "));
  std::vector<std::string> simulated = {"simulate", "--machine=h100", "--expert-load=" + out() + "/metrics.jsonl"};
  simulated.insert(simulated.end(), model.begin(), model.end());
  const Outcome simulation = run_echelon(simulated);
  ASSERT_EQ(simulation.status, 0) << simulation.err;
  EXPECT_THAT(simulation.out,
              HasSubstr(fmt::format("the most loaded of 2 ranks computes {:.2f} times the mean", over_mean)));
}

// The config that trained the model evaluates it as training did; without it the model's own sequence length is taken.
TEST_F(Program, EvaluatesWithTheConfigThatTrained) {
  const std::string config = folder_ + "/run.toml", model = out() + "/model";
  std::ofstream(config) << "[model]\npreset = 'llama-1m'\nvocab_size = 300\nnum_hidden_layers = 2\n[data]\npath = '"
                        << corpus() << "/train'\nvalidation_path = '" << corpus() << "/validation'\n[training]\n"
                        << "steps = 3\nseq_len = 48\nglobal_batch_size = 4\neval_batches = 2\n[output]\ndir = '"
                        << out() << "'\n";
  const Outcome trained = run_echelon({"train", config, "--json"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto last = json_lines(trained.out).back();
  const Outcome same = run_echelon({"eval", config, "--model", model, "--json"});
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(json_lines(same.out)[0]["validation_loss"], last["validation_loss"]);
  EXPECT_EQ(json_lines(same.out)[0]["validation_tokens"], 2 * 4 * 48);
  for (const std::string method : {"ring", "all_gather", "ulysses"}) {
    const Outcome divided = run_echelon({"eval", config, "--model", model, "--parallelism.context_parallel_degree=2",
                                         "--parallelism.context_parallel_method=" + method, "--json"});
    ASSERT_EQ(divided.status, 0) << divided.err;
    EXPECT_NEAR(json_lines(divided.out)[0]["validation_loss"].get<double>(), last["validation_loss"].get<double>(),
                1e-5);
    EXPECT_EQ(json_lines(divided.out)[0]["validation_tokens"], 2 * 4 * 48);
  }
  // The documents of that text, as another cluster would attend to them.
  const Outcome simulated =
      run_echelon({"simulate", config, "--documents=" + corpus() + "/train.idx", "--data.reset_attention_mask=true",
                   "--parallelism.context_parallel_degree=2", "--machine=a100-80", "--json"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const auto documents = json_lines(simulated.out)[0]["documents"];
  EXPECT_GT(documents["pairs_share"].get<double>(), 0);
  EXPECT_LE(documents["pairs_share"].get<double>(), 1);

  const std::vector<std::string> alone = {"eval", "--model", model, "--data", corpus() + "/validation", "--json"};
  const Outcome whole = run_echelon(alone);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(json_lines(whole.out)[0]["seq_len"], 48);
  EXPECT_GT(json_lines(whole.out)[0]["validation_tokens"], 2 * 4 * 48);
  std::vector<std::string> part = alone;
  part.insert(part.end(), {"--training.eval_batches=1", "--training.global_batch_size=4"});
  EXPECT_EQ(json_lines(run_echelon(part).out)[0]["validation_tokens"], 4 * 48);
}

// A Llama of two layers of width D = 128, with F = 384, 4 heads, 2 of keys and values, and 300 tokens: counted by hand.
TEST_F(Program, InspectsWhatItMade) {
  ASSERT_EQ(run_echelon(train({"--training.steps=1", "--model.hidden_size=128", "--model.intermediate_size=384",
                               "--model.num_attention_heads=4", "--model.num_key_value_heads=2",
                               "--model.tie_word_embeddings=true"}))
                .status,
            0);
  const std::string model = out() + "/model";
  const Outcome listed = run_echelon({"inspect", model, "--json"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  const auto json = json_lines(listed.out)[0];
  const std::int64_t D = 128, F = 384, KV = 64, V = 300;
  EXPECT_EQ(json["num_parameters"], V * D + D + 2 * (2 * D + 2 * D * D + 2 * KV * D + 3 * D * F));
  EXPECT_EQ(json["num_bytes"], 4 * json["num_parameters"].get<std::int64_t>());
  EXPECT_EQ(json["tensors"].size(), 2U + 2 * 9);
  EXPECT_THAT(run_echelon({"inspect", model}).out, HasSubstr("model.layers.1.mlp.down_proj.weight"));

  const Outcome tokens = run_echelon({"inspect", corpus() + "/train", "--json"});
  ASSERT_EQ(tokens.status, 0) << tokens.err;
  EXPECT_EQ(json_lines(tokens.out)[0]["token_type"], "u16");
  EXPECT_EQ(json_lines(tokens.out)[0]["num_tokens"].get<std::uintmax_t>(),
            std::filesystem::file_size(corpus() + "/train.bin") / 2);
  EXPECT_EQ(run_echelon({"inspect", corpus() + "/train.bin"}).out, run_echelon({"inspect", corpus() + "/train"}).out);
}

TEST_F(Program, ConvertsAndInspectsCheckpoints) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    const std::string run = out() + "-" + dtype, step = run + "/checkpoint/step-3";
    ASSERT_EQ(
        run_echelon(
            train({"--training.dtype=" + dtype, "--output.dir=" + run, "--parallelism.data_parallel_shard_degree=2",
                   "--optimizer.store_param_remainders=" + std::string(dtype == "float32" ? "false" : "true")}))
            .status,
        0);
    const Outcome converted = run_echelon({"convert", step, run + "/again"});
    ASSERT_EQ(converted.status, 0) << converted.err;
    EXPECT_EQ(run_command({"diff", "-r", run + "/again", run + "/model"}).status, 0);
    const Outcome verified = run_echelon({"inspect", step, "--verify", "--json"});
    ASSERT_EQ(verified.status, 0) << verified.err;
    const auto json = json_lines(verified.out)[0];
    EXPECT_EQ(json["step"], 3);
    EXPECT_EQ(json["sequences"], 12);
    EXPECT_EQ(json["is_verified"], true);
    EXPECT_THAT(run_echelon({"inspect", step}).out, HasSubstr("step 3 of 3"));
  }
  const std::string step = out() + "-float32/checkpoint/step-3", file = step + "/attempt-0001-rank-00001.safetensors";
  EXPECT_EQ(run_echelon({"convert", step, out() + "-float32/again"}).status, 2) << "it exists";
  EXPECT_THAT(run_echelon({"convert", step, out() + "-16", "--dtype=bf16"}).err, HasSubstr("did you mean bfloat16?"));
  EXPECT_THAT(run_echelon({"convert", out(), out() + "-16"}).err, HasSubstr("is not a checkpoint"));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Outcome damaged = run_echelon({"inspect", step, "--verify"});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, testing::AllOf(HasSubstr(file), HasSubstr("cut off")));
}

TEST_F(Program, InspectsAResumedRunAsOne) {
  ASSERT_EQ(run_echelon(train({"--training.steps=3"})).status, 0);
  ASSERT_EQ(run_echelon(train({"--training.steps=5", "--checkpoint.load=latest"})).status, 0);
  const std::string metrics = out() + "/metrics.jsonl";
  std::ofstream(metrics, std::ios::app) << "{\"step\": 6, \"lo";
  EXPECT_THAT(run_echelon({"inspect", metrics}).out,
              testing::AllOf(HasSubstr("steps 1 to 5, 1 resume;"), HasSubstr("1 that is cut off")));
  std::vector<int> steps;
  for (const auto& line : json_lines(run_echelon({"inspect", metrics, "--json"}).out))
    if (line.contains("grad_norm")) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4, 5}));
}

TEST_F(Program, PrintsJsonAndTheConfig) {
  const Outcome outcome = run_echelon(train({"--json", "--checkpoint.enable=false"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto objects = json_lines(outcome.out);
  ASSERT_EQ(objects.size(), 5U);  // three steps, the evaluation and the run
  EXPECT_EQ(objects.back()["was_stopped"], false);
  EXPECT_EQ(objects.back()["loss"], objects[2]["loss"]);

  const Outcome shown = run_echelon(train({"--show-config"}));
  const std::string path = folder_ + "/shown.toml";
  std::ofstream(path) << shown.out;
  EXPECT_EQ(run_echelon({"train", path, "--show-config"}).out, shown.out);
  const auto run = objects.back();
  EXPECT_GT(run["measured_memory_bytes"], 0);
  EXPECT_EQ(run["predicted_memory_bytes"], run["measured_memory_bytes"]);
  EXPECT_GT(run["predicted_step_seconds"], 0.0);
  EXPECT_GT(run["measured_step_seconds"], 0.0);
}

TEST_F(Program, StopsAfterTheStepAtHandOnCtrlC) {
  const Outcome outcome =
      interrupt_echelon(train({"--training.steps=1000000", "--parallelism.data_parallel_shard_degree=2"}), "step:  2");
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("stopped after step"));
  EXPECT_THAT(outcome.out, HasSubstr("checkpoint: " + out() + "/checkpoint/step-"));
}

TEST_F(Program, SavesWhenASchedulerOrATerminalEndsIt) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    const std::string folder = out() + std::to_string(signal);
    const Outcome outcome =
        interrupt_echelon(train({"--training.steps=1000000", "--output.dir=" + folder}), "step:  2", signal);
    EXPECT_EQ(outcome.status, 75) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("checkpoint: " + folder + "/checkpoint/step-"));
  }
}

TEST_F(Program, ContinuesWithoutItsTerminalUnderNohup) {
  std::string command = "trap '' HUP; exec " + std::string(ECHELON_BINARY_DIR) + "/echelon";
  for (const std::string& word : train({"--training.steps=20"})) command += " " + word;
  const Outcome outcome =
      run_command({"sh", "-c", "(" + command + ") & child=$!; sleep 0.2; kill -HUP $child; wait $child"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("done after step 20"));
}

TEST_F(Program, SavesThoughNobodyReadsItsOutput) {
  std::string command = std::string(ECHELON_BINARY_DIR) + "/echelon";
  for (const std::string& word : train({"--training.steps=20"})) command += " " + word;
  const Outcome outcome = run_command({"bash", "-o", "pipefail", "-c", command + " | head -1"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(out() + "/model/config.json"));
}

TEST_F(Program, RefusesInitialWeightsThatAreNotThere) {
  const Outcome outcome = run_echelon(train({"--checkpoint.initial_load_path=/nonexistent/model"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/model"));
}

TEST_F(Program, SaysWhereItCannotWrite) {
  const Outcome outcome = run_echelon(train({"--output.dir=/dev/null/out"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/dev/null/out"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST_F(Program, SaysThatItsOutputGotLost) {
  const std::string file = "/dev/full";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  for (const auto& arguments :
       {std::vector<std::string>{"draw"}, {"draw", "--json"}, train({"--checkpoint.enable=false"})}) {
    const Outcome outcome = run_echelon_into(file, arguments);
    EXPECT_EQ(outcome.status, 1) << arguments[0];
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path());
  return names;
}

TEST_F(Program, CtrlCLeavesNothingOfAPreparation) {
  std::string lines;
  for (int i = 0; i < 200'000; ++i)
    lines += "{\"text\": \"line " + std::to_string(i) + " of a text that takes a while\"}\n";
  std::ofstream(folder_ + "/long.jsonl") << lines;
  for (const std::string phase : {"learning the tokenizer", "encoding"}) {
    const Outcome outcome =
        interrupt_echelon({"prepare", folder_ + "/long.jsonl", "--output", out(), "--vocab-size=400"}, phase);
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("interrupted"));
    EXPECT_THAT(files_below(out()), testing::IsEmpty()) << phase;
  }
}

TEST_F(Program, CtrlCInAPreparationKeepsWhatWasThere) {
  const std::vector<std::string> small = {"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/base", "--output", out(),
                                          "--vocab-size=300"};
  ASSERT_EQ(run_echelon(small).status, 0);
  const auto files = files_below(out());
  std::string lines;
  for (int i = 0; i < 200'000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  std::ofstream(folder_ + "/long.jsonl") << lines;
  EXPECT_EQ(
      interrupt_echelon({"prepare", folder_ + "/long.jsonl", "--output", out(), "--vocab-size=400"}, "encoding").status,
      130);
  EXPECT_EQ(files_below(out()), files);
  EXPECT_THAT(run_echelon(small).out, HasSubstr("it was there already"));
}

TEST_F(Program, RefusesTokensThatWereCutOff) {
  std::filesystem::resize_file(corpus() + "/train.bin", 101);
  const Outcome outcome = run_echelon(train());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr(corpus() + "/train.bin"));
}

TEST_F(Program, RefusesAVocabularyThatIsTooSmallForTheTokenizer) {
  const Outcome outcome = run_echelon(train({"--model.vocab_size=64"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr(corpus() + "/tokenizer.json' makes token "));
  EXPECT_THAT(outcome.err, HasSubstr("but the model's vocab_size is 64"));
}

TEST_F(Program, RefusesAVocabularyThatIsTooSmallForTheTokens) {
  const Outcome outcome = run_echelon(train({"--model.vocab_size=64", "--checkpoint.tokenizer="}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(corpus() + "/train.bin holds token 2"));
  EXPECT_THAT(outcome.err, HasSubstr("but model.vocab_size = 64; the data was made with another tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(out() + "/metrics.jsonl"));
}

TEST_F(Program, RefusesTheTokensOfAnEvaluationBeforeTheFirstStep) {
  std::fstream file(corpus() + "/validation.bin", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-2, std::ios::end).write("\x2d\x01", 2);  // the last token is 301
  file.close();
  const Outcome outcome = run_echelon(train());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr(corpus() + "/validation.bin holds token 301, but model.vocab_size = 300"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(out() + "/metrics.jsonl"));
}

}  // namespace
}  // namespace echelon
