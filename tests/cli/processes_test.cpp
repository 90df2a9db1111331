// The program as processes of an MPI job: the results and files equal those of thread ranks, and only one process
// prints.
#include "cli/program.h"
#include "scratch_folder.h"
#include "spec/machine/host_spec.h"
#include "tree/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::Not;

class Processes : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
    folder_ = scratch_folder() + "/echelon-processes-" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    const Outcome prepared =
        run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output", folder_ + "/corpus",
                     "--vocab-size=300", "--training-sample-bytes=20000", "--validation-fraction=0.2"});
    ASSERT_EQ(prepared.status, 0) << prepared.err;
  }

  /// Eight ranks: 2 data x 2 tensor x 2 pipeline.
  std::vector<std::string> train(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train",
                                          "--model.preset=llama-1m",
                                          "--model.vocab_size=300",
                                          "--model.num_hidden_layers=2",
                                          "--training.steps=4",
                                          "--training.seq_len=32",
                                          "--training.global_batch_size=8",
                                          "--parallelism.data_parallel_shard_degree=2",
                                          "--parallelism.tensor_parallel_degree=2",
                                          "--parallelism.sequence_parallel=true",
                                          "--parallelism.pipeline_parallel_degree=2",
                                          "--data.path=" + folder_ + "/corpus/train",
                                          "--data.validation_path=" + folder_ + "/corpus/validation",
                                          "--checkpoint.tokenizer=" + folder_ + "/corpus/tokenizer.json",
                                          "--output.dir=" + folder_ + "/" + out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// The records of a run without times.
  std::vector<nlohmann::json> metrics(const std::string& out) const {
    std::vector<nlohmann::json> steps;
    for (const std::string& line : tree::lines_of(tree::read_text(folder_ + "/" + out + "/metrics.jsonl"))) {
      steps.push_back(nlohmann::json::parse(line));
      for (const char* const key : {"step_seconds", "tokens_per_second", "tflops", "mfu", "validation_seconds",
                                    "process_peak_bytes", "page_faults", "predicted_step_seconds"})
        steps.back().erase(key);
    }
    return steps;
  }

  std::string folder_;
};

TEST_F(Processes, TrainToTheBitsOfThreads) {
  for (const char* const dtype : {"--training.dtype=float32", "--training.dtype=bfloat16"}) {
    std::filesystem::remove_all(folder_ + "/threads");
    std::filesystem::remove_all(folder_ + "/processes");
    const Outcome threads = run_echelon(train("threads", {dtype})),
                  processes = run_echelon_processes(8, train("processes", {dtype, "--json"}));
    ASSERT_EQ(threads.status, 0) << threads.err;
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(metrics("processes").size(), 5U);  // of one process, not of eight
    EXPECT_EQ(metrics("processes"), metrics("threads"));
    const std::string weights = "/model/model.safetensors";
    EXPECT_EQ(tree::read_text(folder_ + "/processes" + weights), tree::read_text(folder_ + "/threads" + weights));
    // Four steps, the evaluation and the result, printed once.
    EXPECT_EQ(tree::lines_of(processes.out).size(), 6U) << processes.out;
    EXPECT_EQ(processes.err, "");
  }
}

TEST_F(Processes, AreAsManyAsTheMeshHasRanks) {
  const Outcome outcome = run_echelon_processes(4, train("out"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("echelon: the mesh has 8 ranks (the degrees of [parallelism] multiplied), but "
                                     "mpirun started 4 processes (use 8 of them)"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("echelon: rank")));  // three of four processes print nothing

  const Outcome threads = run_echelon_processes(2, train("out", {"--comm.backend=thread"}));
  EXPECT_EQ(threads.status, 2);
  EXPECT_THAT(threads.err, HasSubstr("echelon: comm.backend = thread, but mpirun started 2 processes"));

  const Outcome alone = run_echelon(train("out", {"--comm.backend=mpi"}));
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(
      alone.err,
      HasSubstr(
          "comm.backend = mpi needs a process per rank, but this one was started alone (use mpirun -n 8, or thread)"));
}

TEST_F(Processes, AreRefusedByCommandsOfOneProcess) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"inspect", folder_ + "/corpus/train"}, {"convert", folder_, folder_ + "/model"}}) {
    const Outcome outcome = run_echelon_processes(2, command);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err,
                HasSubstr("echelon: echelon " + command[0] + " runs in one process, but mpirun started 2"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("echelon: rank")));  // the other process prints nothing
  }
}

TEST_F(Processes, GenerateWithSomeExpertsEach) {
  const Outcome trained = run_echelon(
      {"train", "mixtral-30m", "--model.vocab_size=300", "--model.num_hidden_layers=1", "--training.steps=2",
       "--training.seq_len=32", "--training.global_batch_size=2", "--data.path=" + folder_ + "/corpus/train",
       "--checkpoint.tokenizer=" + folder_ + "/corpus/tokenizer.json", "--output.dir=" + folder_ + "/out"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto command = [&](const char* ranks) -> std::vector<std::string> {
    return {"generate",
            folder_ + "/out/model",
            "--prompt=struct",
            "--temperature=0",
            "--max-new-tokens=9",
            "--expert-parallel",
            ranks};
  };
  const Outcome alone = run_echelon(command("1")), threads = run_echelon(command("2")),
                processes = run_echelon_processes(2, command("2"));
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(threads.out, alone.out) << threads.err;
  EXPECT_EQ(processes.out, alone.out) << processes.err;
  const Outcome refused = run_echelon_processes(2, command("1"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--expert-parallel=1 is the number of ranks, but mpirun started 2 processes"));
  EXPECT_THAT(run_echelon(command("3")).err,
              HasSubstr("--expert-parallel=3 does not divide the model's 8 experts (use 2)"));
}

TEST_F(Processes, ArePredictedFromTheirCollectives) {
  HostSpec host{.processor = "one", .num_cores = 2, .memory_bytes = 1 << 30};
  host.operations["matmul"]["float32"] = {{16, 16, 16, 8192, 1e-6, 1e-6, 1e-6}};
  const std::string machine = folder_ + "/machine.toml";
  std::ofstream(machine) << to_toml(host);
  const std::vector<std::string> two = {"--json", "--parallelism.tensor_parallel_degree=1",
                                        "--parallelism.pipeline_parallel_degree=1",
                                        "--parallelism.sequence_parallel=false", "--metrics.machine=" + machine};
  const Outcome before = run_echelon_processes(2, train("before", two));
  ASSERT_EQ(before.status, 0) << before.err;
  EXPECT_TRUE(nlohmann::json::parse(tree::lines_of(before.out).back()).at("predicted_step_seconds").is_null());
  const Outcome measured = run_echelon_processes(2, {"bench", "--rounds=1", "--output", machine});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_EQ(read_host(machine).collectives.at("mpi").at("all_reduce").front().num_ranks, 2);
  EXPECT_EQ(read_host(machine).operations, host.operations);
  const Outcome after = run_echelon_processes(2, train("after", two));
  ASSERT_EQ(after.status, 0) << after.err;
  EXPECT_GT(nlohmann::json::parse(tree::lines_of(after.out).back()).at("predicted_step_seconds").get<double>(), 0);
}

TEST_F(Processes, ThatHaveOtherKeysOrDataThanRank0EndTheJob) {
  const auto two = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> keys = {"--parallelism.tensor_parallel_degree=1",
                                     "--parallelism.pipeline_parallel_degree=1",
                                     "--parallelism.sequence_parallel=false"};
    keys.insert(keys.end(), more.begin(), more.end());
    return train(out, keys);
  };
  const auto run = [&](const std::vector<std::string>& first, const std::vector<std::string>& second) {
    std::vector<std::string> command = {"mpirun", "--allow-run-as-root", "--oversubscribe"};
    for (const auto* each : {&first, &second}) {
      command.insert(command.end(), {"-n", "1", ECHELON_BINARY_DIR "/echelon"});
      command.insert(command.end(), each->begin(), each->end());
      command.emplace_back(":");
    }
    command.pop_back();
    return run_command(command);
  };
  const Outcome keys = run(two("keys", {}), two("keys", {"--optimizer.lr=1e-3"}));
  EXPECT_EQ(keys.status, 2);
  EXPECT_THAT(keys.err, HasSubstr("echelon: rank 1: optimizer.lr is 0.001 here and 0.0003 on rank 0 (give all "
                                  "processes of a run the same config)"));
  const std::vector<std::string> tensor = {"--parallelism.tensor_parallel_degree=2",
                                           "--parallelism.data_parallel_shard_degree=1"};
  EXPECT_THAT(run(two("mesh", {}), two("mesh", tensor)).err,
              HasSubstr("parallelism.data_parallel_shard_degree is 1 here and 2 on rank 0"));
  const Outcome data = run(two("data", {}), two("data", {"--data.path=" + folder_ + "/corpus/validation"}));
  EXPECT_THAT(data.err, HasSubstr("(copy the same files to all hosts)"));
  EXPECT_EQ(run(two("same", {}), two("same", {"--training.num_threads=1"})).status, 0);
  const auto evaluation = [&](const std::string& text, const std::string& key) {
    return std::vector<std::string>{"eval",
                                    "--model=" + folder_ + "/same/model",
                                    "--data=" + folder_ + "/corpus/" + text,
                                    "--parallelism.data_parallel_shard_degree=2",
                                    "--training.global_batch_size=2",
                                    key};
  };
  const auto usual = evaluation("validation", "--training.seq_len=16");
  EXPECT_EQ(run(usual, usual).status, 0);
  EXPECT_THAT(run(usual, evaluation("validation", "--training.seq_len=8")).err,
              HasSubstr("training.seq_len is 8 here and 16 on rank 0"));
  EXPECT_THAT(run(usual, evaluation("train", "--training.seq_len=16")).err, HasSubstr("validation_path is"));
}

/// Two ranks, each with a setting of the environment of its own.
Outcome run_with_settings(const std::vector<std::string>& arguments, const std::array<std::string, 2>& settings) {
  std::vector<std::string> command = {"mpirun", "--allow-run-as-root", "--oversubscribe"};
  for (const std::string& setting : settings) {
    command.insert(command.end(), {"-n", "1", "env", setting, ECHELON_BINARY_DIR "/echelon"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.emplace_back(":");
  }
  command.pop_back();
  return run_command(command);
}

TEST_F(Processes, MultiplyWithTheKernelsOfRank0) {
  const auto two = [&](const std::string& out) {
    // The kernels sum more than 768 values in other orders.
    return train(out, {"--parallelism.tensor_parallel_degree=1", "--parallelism.pipeline_parallel_degree=1",
                       "--parallelism.sequence_parallel=false", "--model.intermediate_size=1001"});
  };
  const std::string own = "ECHELON_FLOAT32_PRODUCTS=own", blas = "ECHELON_FLOAT32_PRODUCTS=openblas";
  std::vector<std::vector<nlohmann::json>> all;
  for (const auto& [out, settings] :
       {std::pair{"own", std::array{own, own}}, {"mixed", {own, blas}}, {"blas", {blas, blas}}}) {
    const Outcome outcome = run_with_settings(two(out), settings);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    all.push_back(metrics(out));
  }
  EXPECT_EQ(all[1], all[0]);
  EXPECT_NE(all[2], all[0]) << "the kernels make no difference, so this test shows nothing";
}

TEST_F(Processes, ThatCannotMultiplyAsRank0DoesEndTheJob) {
  const auto arguments =
      train("out", {"--parallelism.tensor_parallel_degree=1", "--parallelism.pipeline_parallel_degree=1",
                    "--parallelism.sequence_parallel=false"});
  const Outcome outcome =
      run_with_settings(arguments, {"ECHELON_FLOAT32_PRODUCTS=openblas", "ECHELON_INSTRUCTION_SET=scalar"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::ContainsRegex(
                               "echelon: rank 1: the processor of [^ ]+ \\(generic\\) cannot do float32 matmuls by "
                               "'openblas/[A-Za-z]+', which rank 0 chose: this processor has no avx[0-9]+; set "
                               "ECHELON_FLOAT32_PRODUCTS=own for all ranks"));
  // The other way round, rank 0's own kernels are what all of them have.
  const Outcome other = run_with_settings(arguments, {"ECHELON_INSTRUCTION_SET=scalar", "ECHELON_FLOAT32_PRODUCTS="});
  EXPECT_EQ(other.status, 0) << other.err;
}

TEST_F(Processes, OfWhichOneCannotMultiplyAsTheCheckpointResumeToRounding) {
  const std::vector<std::string> more = {"--parallelism.tensor_parallel_degree=1",
                                         "--parallelism.pipeline_parallel_degree=1",
                                         "--parallelism.sequence_parallel=false", "--checkpoint.interval=2"};
  const std::string blas = "ECHELON_FLOAT32_PRODUCTS=openblas";
  ASSERT_EQ(run_with_settings(train("first", more), {blas, blas}).status, 0);
  std::vector<std::string> again = more;
  again.push_back("--checkpoint.load=" + folder_ + "/first/checkpoint/step-2");
  const Outcome outcome =
      run_with_settings(train("again", again), {"ECHELON_FLOAT32_PRODUCTS=own", "ECHELON_INSTRUCTION_SET=scalar"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("warning: rank 1 cannot do the float32 matmuls as in the checkpoint, so the run "
                                     "continues, equal to rounding, with others"));
  const auto last_loss = [&](const char* run) {
    const std::vector<nlohmann::json> lines = metrics(run);
    const auto step =
        std::ranges::find_if(lines, [](const auto& line) { return line.contains("loss") && line["step"] == 4; });
    return step == lines.end() ? 0.0 : step->at("loss").template get<double>();
  };
  EXPECT_GT(last_loss("again"), 0);
  EXPECT_NEAR(last_loss("again"), last_loss("first"), 1e-4);
}

}  // namespace
}  // namespace echelon
