// What `plan` and `simulate` say of adapters on frozen weights is what `train` counts: bytes of memory, bytes that are
// sent, and flops.
#include "checkpoint/scratch_folder.h"
#include "cli/program.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>

namespace echelon {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Json json_of(const Strings& arguments) {
  const Outcome outcome = run_echelon(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

/// A preset, and keys.
class PlannedAdapters : public ::testing::TestWithParam<Strings> {
 protected:
  PlannedAdapters() {
    std::string text;  // of many tokens: padding has no experts
    for (std::size_t i = 0; i < 20000; ++i)
      text += i % 7 == 0 ? ' ' : static_cast<char>('a' + i * i % 23 * (i % 5) % 26);
    std::ofstream(scratch_ / "text.txt") << text;
    const Outcome prepared =
        run_echelon({"prepare", scratch_ / "text.txt", "--output=" + (scratch_ / "corpus").string(), "--vocab-size=300",
                     "--validation-fraction=0"});
    EXPECT_EQ(prepared.status, 0) << prepared.err;
  }

  /// The last step of a run.
  [[nodiscard]] Json trained(const Strings& config) const {
    const Outcome outcome =
        run_echelon(Strings{"train"} + config +
                    Strings{"--data.path=" + (scratch_ / "corpus/train").string(), "--checkpoint.enable=false",
                            "--output.dir=" + (scratch_ / "out").string()});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::ifstream metrics(scratch_ / "out/metrics.jsonl");
    std::string line, last;
    while (std::getline(metrics, line)) last = line;
    return Json::parse(last, nullptr, false);
  }

  ScratchFolder scratch_;
};

double flops_of(const Json& step) { return step["tflops"].get<double>() * step["step_seconds"].get<double>(); }

TEST_P(PlannedAdapters, AreCountedInTheRun) {
  const Strings sizes = {"--model.vocab_size=304",        "--training.seq_len=64", "--training.global_batch_size=8",
                         "--training.micro_batch_size=1", "--training.steps=2",    "--training.device=cpu"};
  const std::string preset = GetParam().front();
  for (const Strings& trains :
       {Strings{}, Strings{"--lora.rank=4"}, Strings{"--lora.rank=2", "--lora.target_modules=o_proj"}}) {
    SCOPED_TRACE(trains.empty() ? "all weights" : trains.back());
    const Strings keys = sizes + trains + Strings(GetParam().begin() + 1, GetParam().end()),
                  config = Strings{"--model.preset=" + preset} + keys;
    const Json run = trained(config),
               simulated = json_of(Strings{"simulate"} + config + Strings{"--machine=h100", "--json"});
    EXPECT_EQ(simulated["stages"][0]["arena_bytes"], run["memory_peak_bytes"]) << "of rank 0";
    EXPECT_EQ(simulated["comm_bytes"], run["comm_bytes"]);
    EXPECT_NEAR(flops_of(simulated), flops_of(run), 1e-9 * flops_of(run));
    const std::string best = scratch_ / "plan.toml";
    const Json plans = json_of(Strings{"plan", preset, "--machine=h100", "--gpus=4", "--top=1", "--json"} + keys +
                               Strings{"--output=" + best});
    EXPECT_EQ(plans["plans"][0]["memory"][0]["arena_bytes"], trained({best})["memory_peak_bytes"]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PlannedAdapters,
    ::testing::Values(Strings{"llama-1m", "--parallelism.tensor_parallel_degree=2",
                              "--parallelism.pipeline_parallel_degree=2"},
                      Strings{"llama-1m", "--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_level=2"},
                      Strings{"llama-1m", "--parallelism.data_parallel_shard_degree=2",
                              "--parallelism.pipeline_parallel_degree=2", "--parallelism.zero_level=3"},
                      Strings{"deepseek-v3-28m", "--model.num_hidden_layers=2", "--moe.force_balance=true",
                              "--parallelism.data_parallel_shard_degree=2", "--parallelism.tensor_parallel_degree=2",
                              "--parallelism.sequence_parallel=true", "--parallelism.expert_parallel_degree=4"}));

}  // namespace
}  // namespace echelon
