// The program with GPUs, from the command line, on the emulated device: its output equals that on CPUs.
#include "cli/program.h"
#include "scratch_folder.h"
#include "spec/machine/machine_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace echelon {
namespace {

using ::testing::HasSubstr;

class GpuProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("ECHELON_CUDA_PLUGIN", ECHELON_BINARY_DIR "/libechelon_cuda_emulated.so", 1);
    folder_ = scratch_folder() + "/echelon-gpu-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  ~GpuProgram() override { unsetenv("ECHELON_CUDA_PLUGIN"); }

  static nlohmann::json json_of(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_echelon(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out.empty() ? "null" : outcome.out);
  }

  std::string folder_;
};

// A tiny model on a corpus of sources: trained on the emulated GPU, then evaluated and continued on both.
TEST_F(GpuProgram, EvaluatesAndGeneratesWhatProcessorsDo) {
  const std::string corpus = folder_ + "/corpus", model = folder_ + "/out/model";
  ASSERT_EQ(run_echelon({"prepare", ECHELON_SOURCE_DIR "/src/base", "--output", corpus, "--vocab-size=300",
                         "--training-sample-bytes=20000", "--validation-fraction=0.1"})
                .status,
            0);
  const Outcome trained =
      run_echelon({"train", "--model.preset=llama-1m", "--model.vocab_size=300", "--model.num_hidden_layers=1",
                   "--model.hidden_size=32", "--model.num_attention_heads=2", "--model.num_key_value_heads=1",
                   "--model.head_dim=16", "--model.intermediate_size=48", "--model.initializer_range=0.3",
                   "--training.steps=2", "--training.seq_len=16", "--training.global_batch_size=2",
                   "--training.device=cuda", "--data.path=" + corpus + "/train",
                   "--checkpoint.tokenizer=" + corpus + "/tokenizer.json", "--output.dir=" + folder_ + "/out"});
  ASSERT_EQ(trained.status, 0) << trained.err;

  std::vector<std::string> evaluate = {"eval",
                                       "--model",
                                       model,
                                       "--data",
                                       corpus + "/validation",
                                       "--training.seq_len=16",
                                       "--training.global_batch_size=16",
                                       "--training.micro_batch_size=16",
                                       "--json",
                                       "--training.device=cpu"};
  const double expected = json_of(evaluate)["validation_loss"];
  evaluate.back() = "--training.device=cuda";
  EXPECT_NEAR(json_of(evaluate)["validation_loss"], expected, 1e-5 * expected);

  std::vector<std::string> generate = {
      "generate",        "--model", model,         "--prompt=#include", "--max-new-tokens=12",
      "--temperature=0", "--json",  "--device=cpu"};
  const auto on_cpu = json_of(generate);
  generate.back() = "--device=cuda";
  const auto on_gpu = json_of(generate);
  EXPECT_EQ(on_gpu["text"], on_cpu["text"]);
  EXPECT_EQ(on_gpu["num_new_tokens"], on_cpu["num_new_tokens"]);
  EXPECT_THAT(on_gpu["device"].get<std::string>(), HasSubstr("(GPU 0)"));
  generate.back() = "--device=gpu";
  EXPECT_THAT(run_echelon(generate).err, HasSubstr("--device = 'gpu' is not one of auto, cpu, cuda; did you mean "));
}

// Biases of all layers belong to matmuls of one kind.
TEST_F(GpuProgram, TrainsAGpt2InBfloat16) {
  const std::string corpus = folder_ + "/corpus";
  ASSERT_EQ(run_echelon({"prepare", ECHELON_SOURCE_DIR "/src/base", "--output", corpus, "--vocab-size=300",
                         "--training-sample-bytes=20000"})
                .status,
            0);
  std::vector<std::string> train = {"train",
                                    "--model.model_type=gpt2",
                                    "--model.vocab_size=300",
                                    "--model.num_hidden_layers=2",
                                    "--model.hidden_size=32",
                                    "--model.num_attention_heads=2",
                                    "--model.max_position_embeddings=16",
                                    "--training.steps=2",
                                    "--training.seq_len=16",
                                    "--training.global_batch_size=2",
                                    "--training.dtype=bfloat16",
                                    "--training.logits_dtype=bfloat16",
                                    "--checkpoint.enable=false",
                                    "--data.path=" + corpus + "/train",
                                    "--output.dir=" + folder_ + "/out",
                                    "--json",
                                    "--html=" + folder_ + "/report.html",
                                    "--training.device=cpu"};
  const auto loss_of = [&] {
    const Outcome outcome = run_echelon(train);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string last = outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2) + 1);
    return nlohmann::json::parse(last)["loss"].get<double>();
  };
  const double expected = loss_of();
  train.back() = "--training.device=cuda";
  EXPECT_NEAR(loss_of(), expected, 1e-2 * expected);
  const auto text_of = [&](const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(folder_ + file).rdbuf();
    return text.str();
  };
  EXPECT_THAT(text_of("/report.html"), HasSubstr(" of 80.0 GiB<"));
  EXPECT_THAT(text_of("/out/metrics.jsonl"), HasSubstr(R"({"device_choices":"attention of )"));
}

// The times are the emulation's and meaningless, but simulate and plan accept the file.
TEST_F(GpuProgram, MeasuresAMachineToPlanFor) {
  std::filesystem::create_directories(folder_);
  const std::string file = folder_ + "/gpu.toml";
  const auto measured = json_of(
      {"bench", "--device=cuda", "--largest-size=32", "--seconds=0.01", "--rounds=1", "--json", "--output=" + file});
  const MachineSpec machine = read_machine(file);
  const DeviceSpec& device = machine.nodes.front().device;
  EXPECT_EQ(device.memory_bytes, measured["memory_bytes"]);
  EXPECT_GT(device.operation_seconds, 0);
  EXPECT_EQ(device.launch_seconds, measured["launch_seconds"]);
  EXPECT_NE(device.launch_seconds, usual_launch_seconds) << "not the estimate";
  EXPECT_EQ(device.collective_launch_seconds, usual_collective_launch_seconds);
  for (const char* format : {"bfloat16", "float16", "float8", "tensorfloat32", "float32", "float64"}) {
    ASSERT_TRUE(device.formats.contains(format)) << format;
    const FormatRates& rates = device.formats.find(format)->second;
    EXPECT_EQ(rates.points.size(), 2U) << format;  // 32 x 32 x 32 and a vocabulary of four times that
    for (const MatmulPoint& point : rates.points) EXPECT_GT(point.flops, 0);
    EXPECT_GT(rates.fastest_flops, 0);
    EXPECT_GE(rates.peak_flops, rates.fastest_flops);
    EXPECT_DOUBLE_EQ(measured["formats"][format]["fastest_flops"].get<double>(), rates.fastest_flops);
  }
  const std::vector<std::string> model = {"--model.preset=llama-1m", "--training.seq_len=64",
                                          "--training.dtype=bfloat16"};
  std::vector<std::string> simulate = {"simulate", "--machine=" + file, "--json"};
  simulate.insert(simulate.end(), model.begin(), model.end());
  EXPECT_GT(json_of(simulate)["predicted_seconds"].get<double>(), 0);
  EXPECT_GT(json_of({"plan", "--model=llama-1m", "--machine=" + file, "--gpus=1", "--global-batch-size=2",
                     "--seq-len=64", "--top=1", "--json"})["plans"]
                .size(),
            0U);
}

}  // namespace
}  // namespace echelon
