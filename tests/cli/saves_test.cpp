// What commands say of checkpoints: the bytes that a run then writes, and seconds where the disk was measured.
#include "checkpoint/scratch_folder.h"
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

namespace echelon {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Saves : public testing::Test {
 protected:
  /// A small run on two ranks that saves after each of its three steps while it trains.
  [[nodiscard]] std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {name,
                                          "--model.preset=llama-1m",
                                          "--model.vocab_size=300",
                                          "--training.seq_len=32",
                                          "--training.global_batch_size=4",
                                          "--checkpoint.interval=1",
                                          "--checkpoint.async_mode=async",
                                          "--metrics.machine=" + machine(),
                                          "--output.dir=" + (scratch_ / "out").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] std::string machine() const { return (scratch_ / "machine.toml").string(); }
  void measure_machine() const {
    const Outcome measured = run_echelon({"bench", "--seconds=0.01", "--rounds=0", "--disk", scratch_.path().string(),
                                          "--disk-mb=8", "--output", machine()});
    ASSERT_EQ(measured.status, 0) << measured.err;
    EXPECT_THAT(measured.out, HasSubstr("disk of " + scratch_.path().string()));
  }
  [[nodiscard]] Outcome trained(const std::vector<std::string>& more = {}) const {
    const std::string corpus = (scratch_ / "corpus").string();
    EXPECT_EQ(run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output", corpus,
                           "--vocab-size=300", "--training-sample-bytes=20000"})
                  .status,
              0);
    std::vector<std::string> arguments = command("train", {"--training.steps=3", "--data.path=" + corpus + "/train",
                                                           "--parallelism.data_parallel_shard_degree=2"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_echelon(arguments);
  }

  ScratchFolder scratch_;
};

json last_object(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n'), begin = text.rfind('\n', end);
  return json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1, end + 1));
}

/// The second step takes the snapshot that the first checkpoint is written from.
void expect_own_prediction_of_snapshots(const std::string& out) {
  std::istringstream lines(out);
  std::vector<json> steps;
  for (std::string line; std::getline(lines, line);) steps.push_back(json::parse(line));
  const json run = steps.back(), snapshot = run["checkpoint"]["snapshot"];
  EXPECT_EQ(steps[0]["takes_snapshot"], false);
  EXPECT_EQ(steps[0]["predicted_step_seconds"], run["predicted_step_seconds"]);
  EXPECT_EQ(steps[1]["takes_snapshot"], true);
  EXPECT_EQ(steps[1]["predicted_step_seconds"], snapshot["predicted_step_seconds"]);
  EXPECT_GT(snapshot["predicted_step_seconds"], run["predicted_step_seconds"]);
  EXPECT_GT(snapshot["predicted_writer_core_seconds"], 0.0);
  EXPECT_GT(run["measured_snapshot_step_seconds"], 0.0);
}

// Claim (plans): The files of a checkpoint have the bytes that `inspect`, `simulate` and `train` print.
// Bound: equal.
// Tests: Saves.HaveTheBytes
TEST_F(Saves, HaveTheBytesThatAllCommandsPrint) {
  ASSERT_NO_FATAL_FAILURE(measure_machine());
  const Outcome outcome = trained({"--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::int64_t num_bytes = 0, largest = 0, manifest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "out/checkpoint/step-3")) {
    const auto size = static_cast<std::int64_t>(entry.file_size());
    if (entry.path().extension() == ".json") manifest += size;
    if (entry.path().extension() != ".safetensors") continue;
    num_bytes += size;
    largest = std::max(largest, size);
  }
  const json run = last_object(outcome.out)["checkpoint"];
  EXPECT_EQ(run["bytes"], num_bytes);
  EXPECT_EQ(run["largest_file_bytes"], largest);
  EXPECT_EQ(run["files"], 2);
  EXPECT_GE(run["most_manifest_bytes"], manifest);
  for (const char* name : {"predicted_save_seconds", "predicted_load_seconds", "measured_save_seconds"})
    EXPECT_GT(run[name], 0.0) << name;
  expect_own_prediction_of_snapshots(outcome.out);
  const std::vector<std::string> layout = {"--parallelism.data_parallel_shard_degree=2", "--json"};
  for (const std::string name : {"inspect", "simulate"}) {
    const Outcome other = run_echelon(command(name, layout));
    ASSERT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(last_object(other.out)["checkpoint"]["bytes"], num_bytes) << name;
    EXPECT_EQ(last_object(other.out)["checkpoint"]["largest_file_bytes"], largest) << name;
  }
}

TEST_F(Saves, SecondsAreToldWhereTheDiskWasMeasured) {
  ASSERT_NO_FATAL_FAILURE(measure_machine());
  const Outcome outcome = trained();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words : {"predicted: a checkpoint is saved in ", "saved in ", " s (predicted ",
                            "\ncheckpoint: predicted ", "\nstep with a snapshot: predicted "})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Outcome planned = run_echelon(
      {"plan", "--model=llama-1m", "--machine=" + machine(), "--gpus=2", "--global-batch-size=4", "--seq-len=32"});
  EXPECT_THAT(planned.out, testing::AllOf(HasSubstr("checkpoint: "), HasSubstr("a checkpoint is saved in ")));
  const Outcome shipped =
      run_echelon({"plan", "--model=llama-1m", "--machine=v100", "--gpus=2", "--global-batch-size=4", "--seq-len=32"});
  EXPECT_THAT(shipped.out, testing::AllOf(HasSubstr("checkpoint: "), testing::Not(HasSubstr("is saved in "))));
  const json plan = last_object(run_echelon({"plan", "--model=llama-1m", "--machine=v100", "--gpus=2",
                                             "--global-batch-size=4", "--seq-len=32", "--json"})
                                    .out)["plans"][0]["checkpoint"];
  EXPECT_GT(plan["bytes"], 0);
  EXPECT_TRUE(plan["predicted_save_seconds"].is_null());
}

}  // namespace
}  // namespace echelon
