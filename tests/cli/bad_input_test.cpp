// Bad input ends the program with status 2 and one line that names the error and its fix, never with a crash.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>

namespace echelon {
namespace {

using testing::HasSubstr;

struct BadInput {
  std::vector<std::string> arguments;
  std::vector<std::string> named;        // what the line must contain
  std::optional<std::string> file = {};  // the content of a file whose path is the last argument
};

std::ostream& operator<<(std::ostream& out, const BadInput& input) {
  for (const std::string& argument : input.arguments) out << argument << ' ';
  return out << input.file.value_or("");
}

class BadInputs : public testing::TestWithParam<BadInput> {};

// One file per test, for tests run side by side.
std::string write_file(const std::string& text) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "-" + test->name() + ".toml";
  std::replace(name.begin(), name.end(), '/', '-');
  const std::string path = std::filesystem::path(scratch_folder()) / name;
  std::ofstream(path) << text;
  return path;
}

TEST_P(BadInputs, EndInOneLineAndStatusTwo) {
  std::vector<std::string> arguments = GetParam().arguments;
  if (GetParam().file) arguments.push_back(write_file(*GetParam().file));
  const Outcome outcome = run_echelon(arguments);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, testing::StartsWith("echelon: "));
  EXPECT_THAT(outcome.err, testing::EndsWith("\n"));
  for (const std::string& part : GetParam().named) EXPECT_THAT(outcome.err, HasSubstr(part));
}

const BadInput command_lines[] = {
    {{"drwa"}, {"'drwa'", "did you mean draw?"}},
    {{""}, {"''"}},
    {{"--hlep"}, {"--hlep", "did you mean --help?"}},
    {{"draw", "--stage=4"}, {"--stage=4", "did you mean --stages?"}},
    {{"draw", "--stages=four"}, {"--stages", "four"}},
    {{"draw", "--stages=0"}, {"--stages: 0 is below 1 (use 1)"}},
    {{"draw", "--stages=99999999999999999999"}, {"--stages", "99999999999999999999"}},
    {{"draw", "--stages"}, {"--stages"}},
    {{"draw", "--stages="}, {"--stages=", "such as 4"}},
    {{"draw", "--stages", "--json"}, {"--stages has no value"}},
    {{"draw", "--backward=nan"}, {"--backward=nan"}},
    {{"draw", "--stages=4", "--stages", "5"}, {"--stages=5 is a second value of --stages"}},
    {{"bench", "--output="}, {"--output is empty"}},
    {{"bench", "--seconds=0"}, {"--seconds: 0 is below 0.01 (use 0.01)"}},
    {{"verify", "llama-1m", "--layers=-1"}, {"--layers: -1 is below 0"}},
    {{"verify", "llama-1m", "--hidden=-5"}, {"--hidden: -5 is below 0 (use 0)"}},
    {{"tune", "--steps=0"}, {"--steps: 0 is below 1 (use 1)"}},
    {{"help"}, {"'help'", "did you mean --help?"}},
    {{"draw", "--schedule=1f2b"}, {"--schedule", "'1f2b'", "did you mean 1F1B?"}},
    {{"draw", "--schedule=ZB-H3"}, {"--schedule", "'ZB-H3'", "did you mean ZB-H1?"}},
    {{"draw", "--forward-ms=-1"}, {"--forward-ms: -1 is below 0 (use 0)"}},
    {{"draw", "--p2p-ms=inf"}, {"--p2p-ms: inf is above 1000000000 (use 1000000000)"}},
    {{"draw", "--microbatches=65537"}, {"--microbatches: 65537 is above 65536 (use 65536)"}},
    {{"draw", "--stages=1024", "--microbatches=1024"}, {"--microbatches=1024", "(use --microbatches=512)"}},
    {{"draw", "--virtual=2"}, {"--virtual = 2 is not supported for --schedule = '1F1B' (use 1)"}},
    {{"draw", "--schedule=ZB-V", "--virtual=3"}, {"--virtual = 3", "(use 2)"}},
    {{"draw", "--schedule=Interleaved1F1B", "--virtual=1"}, {"--virtual = 1", "(use 2)"}},
    {{"draw", "--schedule=DualPipeV", "--microbatches=7"},
     {"needs at least 8 microbatches", "--microbatches makes 7 (use --microbatches = 8)"}},
    {{"draw", "--schedule=ZB-2p", "--memory-limit=0.5"}, {"--memory-limit = 0.5 has no room for a microbatch (use 1)"}},
    {{"draw", "--memory-limit=3"}, {"--memory-limit = 3 is less than the 4 microbatches in flight on rank 0 (use 4)"}},
    {{"draw", "--schedule-csv=" ECHELON_SOURCE_DIR "/tests/schedule/torch_csv/ZBVZeroBubble-2-4-2.csv",
      "--memory-limit=1"},
     {"--memory-limit = 1 is less than the 2 microbatches in flight on rank 0 (use 2)"}},
    {{"draw", "--weight-memory=2"}, {"--weight-memory: 2 is above 1 (use 1)"}},
    {{"draw", "--format=png"}, {"--format=png", "did you mean svg?"}},
    {{"draw", "--output=/nonexistent/x.svg"}, {"--output=/nonexistent/x.svg cannot be written"}},
    {{"draw", "--schedule-csv=/nonexistent.csv"}, {"--schedule-csv=/nonexistent.csv cannot be read"}},
    {{"draw", "--schedule-csv=" ECHELON_SOURCE_DIR "/tests/schedule/torch_csv/1F1B-4-8-1.csv"},
     {"9 microbatches need 72 passes"}},
    {{"draw", "--schedule-csv=a.csv", "--stages=4"}, {"--schedule-csv", "excludes", "--stages"}},
    {{"draw", "--json", "--format=svg"}, {"excludes", "--json"}},
    {{"draw", "--backward=2", "--backward-input-ms=1"}, {"--backward"}},
    {{"draw", "extra"}, {"'extra'"}},
    {{"draw", "--training.steps=5"}, {"--training.steps=5"}},
};
INSTANTIATE_TEST_SUITE_P(CommandLines, BadInputs, testing::ValuesIn(command_lines));

const std::string good = "--model.preset=llama-1m", data = "--data.path=/nonexistent/train";
const BadInput train_arguments[] = {
    {{"train"}, {"the config has no model", "model.preset"}},
    {{"train", "/nonexistent/run.toml"}, {"'/nonexistent/run.toml'"}},
    {{"train", good}, {"data.path is missing"}},
    {{"train", good, data}, {"/nonexistent/train"}},
    {{"train", "--model.preset=llama-2m"}, {"model.preset = 'llama-2m'", "did you mean llama-1m?", "llama3-405b"}},
    {{"train", "llama-2m"}, {"model.preset = 'llama-2m'", "did you mean llama-1m?"}},
    {{"train", "--model.path=/nonexistent/model"}, {"/nonexistent/model"}},
    {{"train", good, "--training.stpes=5"}, {"training.stpes", "did you mean training.steps?"}},
    {{"train", good, "--training.step-size", "5"}, {"training.step_size", "did you mean training.steps?"}},
    {{"train", good, "--steps=5"}, {"--steps=5", "did you mean --training.steps?"}},
    {{"train", good, "-training.steps=5"}, {"-training.steps=5", "did you mean --training.steps?"}},
    {{"train", good, "--jsn"}, {"--jsn", "did you mean --json?"}},
    {{"train", good, "--training.steps"}, {"--training.steps has no value"}},
    {{"train", good, "--training.steps=0"}, {"training.steps = 0", "(use 1)"}},
    {{"train", good, "--training.steps=9223372036854775807"}, {"training.steps = 9223372036854775807"}},
    {{"train", good, "--training.seq_len=100000"},
     {"training.seq_len = 100000", "did you mean 512?", "--model.max_position_embeddings=100000"}},
    {{"train", good, "--training.steps=1e18"}, {"training.steps = 1000000000000000000", "(use 2147483647)"}},
    {{"train", good, "--training.steps=1e3x"}, {"training.steps = \"1e3x\" is not an integer"}},
    {{"train", good, "--optimizer.lr=nan"}, {"optimizer.lr = nan is not a finite number"}},
    {{"train", good, "--model.rope_theta=inf"}, {"model.rope_theta = inf"}},
    {{"train", good, data, "--model.num_hidden_layers=2147483647"},
     {"model.num_hidden_layers = 2147483647", "(use 16384)"}},
    {{"train", good, data, "--model.hidden_size=2147483644", "--model.intermediate_size=2147483647"},
     {"model.hidden_size = 2147483644", "heads of 536870911", "(use model.hidden_size = 262144)"}},
    {{"train", good, data, "--model.hidden_size=16777216", "--model.intermediate_size=16777216", "--model.head_dim=64"},
     {"parameters", "model.hidden_size"}},
    {{"train", good, data, "--training.global_batch_size=2147483647"},
     {"training.global_batch_size = 2147483647", "microbatches"}},
    {{"train", good, "--data.path=/nonexistent/train.bin"}, {"data.path", "(use '/nonexistent/train')"}},
    {{"train", "/tmp"}, {"'/tmp' is not a model"}},
    {{"train", "/dev/zero"}, {"'/dev/zero' cannot be read"}},
    {{"train", "/proc/self/mem"}, {"'/proc/self/mem' cannot be read"}},
    {{"train", good, "--tp=2"}, {"did you mean --parallelism.tensor_parallel_degree?"}},
    {{"train", good, "--learning_rate=1e-3"}, {"did you mean --optimizer.lr?"}},
    {{"train", good, "--batch_size=8"}, {"did you mean --training.global_batch_size?"}},
    {{"train", good, "--bf16"}, {"did you mean --training.dtype=bfloat16?"}},
    {{"train", good, "--resume"}, {"did you mean --checkpoint.load?"}},
    {{"train", good, "--frobnicate=3"}, {"see echelon train --help"}},
    {{"plan", good, "--batch-size=8"}, {"did you mean --global-batch-size?"}},
    {{"plan", good, "--num_gpus=8"}, {"did you mean --gpus?"}},
    {{"plan", "gpt2-124m", "--machine=h100", "--gpus=8", "--global-batch-size=8", "--seq-len=32768"},
     {"--model.max_position_embeddings=32768"}},
    {{"train", "--model.preset=\x1b[31m\a"}, {"'\\x1b[31m\\x07'"}},
    {{"train", good, std::string("--training.steps=") + std::string(100'000, '9')}, {"999 ... 999"}},
    {{"train", good, "--parallelism.virtual_stages=2"}, {"parallelism.virtual_stages", "(use 1)"}},
    {{"train", good, "--parallelism.virtual_stage=2"}, {"there is no key parallelism.virtual_stage"}},
    {{"train", good, "--data.packing=best"}, {"data.packing = 'best'", "stream, best_fit", "did you mean best_fit?"}},
    {{"train", good, "--data.balance_batch"},
     {"data.balance_batch = true", "data.reset_attention_mask = false (use data.reset_attention_mask = true)"}},
    {{"train", good, "--data.reset_position_ids=anew"}, {"data.reset_position_ids = \"anew\" is not true or false"}},
    {{"train", good, "--data.eod_mask_loss=off"}, {"data.eod_mask_loss = \"off\"", "did you mean false?"}},
    {{"train", good, "--data.eod_mask_loss=1"}, {"data.eod_mask_loss = \"1\"", "did you mean true?"}},
    {{"train", good, "--checkpoint.async_mode=asynk"}, {"checkpoint.async_mode = 'asynk'", "did you mean async?"}},
    {{"train", good, "--checkpoint.snapshot_bytes=-2"}, {"checkpoint.snapshot_bytes = -2", "-1"}},
    {{"train", good, "--checkpoint.timeout_seconds=0"}, {"checkpoint.timeout_seconds = 0", "0.001"}},
    {{"train", good, "--checkpoint.load"}, {"--checkpoint.load has no value"}},
    {{"train", good, "--checkpoint.exclude_from_loading=optimiser"}, {"'optimiser'", "did you mean optimizer?"}},
    {{"train", good, "--metrics.trace", "on"}, {"metrics.trace", "on", "steps 3-5"}},
    {{"train"},
     {".toml:4", "data.split", "is not supported yet"},
     "[model]\npreset = 'llama-1m'\n[data]\nsplit = [9, 1]\n"},
    {{"train"},
     {".toml:4", "data.path is a list", "not supported here"},
     "[model]\npreset = 'llama-1m'\n[data]\npath = [0.5, 'a', 0.5, 'b']\n"},
    {{"train", good, data, "--checkpoint.initial_load_path=/nonexistent/model", "--show-config", "--output.dir=\xff"},
     {"'--output.dir=\\xff' is not UTF-8"}},
    {{"train", good, "--training.dtype=float8"}, {"training.dtype = 'float8'"}},
    {{"train", good, data, "--training.global_batch_size=3", "--training.micro_batch_size=2"},
     {"training.global_batch_size = 3", "(use 2)"}},
    {{"train", good, data, "--parallelism.pipeline_parallel_degree=7"},
     {"parallelism.pipeline_parallel_degree = 7 makes 7 stages", "(use 6)"}},
    {{"train", good, data, "--parallelism.pipeline_parallel_degree=2", "--parallelism.virtual_stages=9",
      "--parallelism.pipeline_parallel_schedule=LoopedBFS"},
     {"parallelism.virtual_stages = 9 makes 18 stages on 2 ranks, more than model.num_hidden_layers = 4 with embedding "
      "and head (use 3)"}},
    {{"train", good, data, "--parallelism.pipeline_parallel_degree=4", "--parallelism.pipeline_parallel_schedule=ZB-V"},
     {"parallelism.pipeline_parallel_degree = 4 makes 8 stages of virtual_stages = 2", "(use 3)"}},
    {{"train", good, data, "--parallelism.pipeline_parallel_degree=2", "--parallelism.pipeline_memory_limit=1"},
     {"parallelism.pipeline_memory_limit = 1 is less than the 2 microbatches in flight on rank 0 (use 2)"}},
    {{"train", good, data, "--parallelism.pipeline_parallel_schedule_csv=/nonexistent.csv"},
     {"pipeline_parallel_schedule_csv = '/nonexistent.csv' cannot be read"}},
    {{"train", good, data, "--parallelism.tensor_parallel_degree=64"},
     {"parallelism.tensor_parallel_degree = 64", "(use 4)"}},
    {{"train", good, data, "--training.mlp_chunk_tokens=64"},
     {"training.mlp_chunk_tokens = 64 recomputes", "training.recompute = 'none' saves it", "(use recompute = mlp)"}},
    {{"train", good, data, "--training.mlp_chunk_tokens=64", "--training.recompute=full",
      "--training.recompute_method=block"},
     {"training.mlp_chunk_tokens = 64 recomputes in all blocks", "(use recompute_method = uniform)"}},
    {{"train", good, data, "--training.mlp_chunk_tokens=-1"}, {"training.mlp_chunk_tokens = -1 is below 0 (use 0)"}},
    {{"train", good, data, "--model.sliding_window=8"},
     {"model.sliding_window = 8 is not supported: config.json of model_type = 'llama' has none (use 0)"}},
    {{"train", good, data, "--parallelism.context_parallel_degree=4096"},
     {"parallelism.context_parallel_degree = 4096 is more than training.seq_len = "}},
    {{"train", good, data, "--parallelism.context_parallel_method=ulises", "--parallelism.context_parallel_degree=2"},
     {"'ulises'", "did you mean ulysses?"}},
    {{"train", good, data, "--parallelism.context_parallel_method=a2a"},
     {"parallelism.context_parallel_method = 'ulysses' does not apply", "(use ring)"}},
    {{"train", good, data, "--parallelism.context_parallel_method=a2a+p2p", "--parallelism.context_parallel_degree=4"},
     {"parallelism.context_parallel_ulysses_degree = 0", "(use 2)"}},
    {{"train", good, data, "--parallelism.context_parallel_method=ulysses_ring",
      "--parallelism.context_parallel_degree=4", "--parallelism.context_parallel_ulysses_degree=3"},
     {"parallelism.context_parallel_ulysses_degree = 3 does not divide context_parallel_degree = 4 (use 2)"}},
    {{"train", good, data, "--parallelism.context_parallel_method=ulysses", "--parallelism.context_parallel_degree=3"},
     {"parallelism.context_parallel_degree = 3 ranks cannot exchange", "(use 2)"}},
    {{"train", good, data, "--parallelism.hierarchical_context_parallel_sizes=2,2",
      "--parallelism.context_parallel_degree=4"},
     {"parallelism.hierarchical_context_parallel_sizes = [2, 2] does not apply", "(use [])"}},
    {{"train", good, data, "--parallelism.hierarchical_context_parallel_sizes=two"},
     {"parallelism.hierarchical_context_parallel_sizes = \"two\" is not a list of integers", "[3, 5]"}},
    {{"train", good, data, "--parallelism.context_parallel_degree=2",
      "--parallelism.context_parallel_load_balancer=packed"},
     {"context_parallel_load_balancer = 'packed' distributes documents, but data.reset_attention_mask = false (use "
      "data.reset_attention_mask = true)"}},
    {{"train", good, data, "--parallelism.context_parallel_load_balancer=headtial"},
     {"'headtial'", "did you mean headtail?"}},
    {{"train", good, data, "--parallelism.zero_level=4"}, {"parallelism.zero_level = 4", "(use 3)"}},
    {{"train", good, data, "--parallelism.reshard_after_forward=nevr"}, {"'nevr'", "did you mean never?"}},
    {{"train", good, data, "--parallelism.data_parallel_shard_degree=1000000", "--training.global_batch_size=1000000"},
     {"1000000 ranks", "(use 4096, "}},
    {{"train", good, data, "--parallelism.pipeline_parallel_schedule=1F2B"}, {"'1F2B'", "did you mean 1F1B?"}},
    {{"train", good, data, "--model.hidden_size=9000000000000000000"}, {"model.hidden_size = 9000000000000000000"}},
    {{"train", "--model.preset=gpt3-175b", data}, {"GiB", "training.micro_batch_size = 1"}},
    {{"train", "--model.preset=gpt3-175b", data, "--parallelism.pipeline_parallel_degree=96",
      "--parallelism.tensor_parallel_degree=8"},
     {"768 ranks"}},
    {{"train", good, "extra.toml", "more"}, {"'more'"}},
    {{"train"},
     {".toml:3", "[optimiser]", "did you mean [optimizer]?"},
     "[model]\npreset = 'llama-1m'\n[optimiser]\nlr = 1.0\n"},
    {{"train"}, {".toml:2"}, "[model]\npreset = llama\n"},
    {{"train"}, {".toml:1"}, std::string("\0\xff\x01[model]", 10)},
    {{"train"}, {"model.preset"}, "[model]\npreset = \"a\\nb\"\n"},
    {{"train"}, {"has no model"}, ""},
};
INSTANTIATE_TEST_SUITE_P(Train, BadInputs, testing::ValuesIn(train_arguments));

/// A question that has an answer.
const std::string on_h100 = "--machine=h100", two_gpus = "--gpus=2", eight = "--global-batch-size=8";

const BadInput plan_arguments[] = {
    {{"plan", "llama-1m", on_h100, eight, "--gpus=64..8"}, {"--gpus=64..8 ends below its start (use 8..64)"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--price=0"},
     {"--price=0 is not a price", "(example: --price=2.5)"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--hours=0"},
     {"--hours=0 is not a time of training (example: --hours=24)"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--hours=many"}, {"--hours=many is not a number"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--tokens=0"},
     {"--tokens=0 is not a number of tokens (example: --tokens=15T)"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--tokens=1T", "--mtbf=3/rack"},
     {"--mtbf=3/rack is not the hours between failures", "--mtbf=6000/node"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--tokens=1T", "--failures=419"},
     {"--failures=419 is not failures, days and devices (example: --failures=419,54,16384)"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--failures=419,54,16384"}, {"need --tokens or --hours"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--training.dtype=fp17"},
     {"training.dtype = 'fp17'", "did you mean float16?"}},
    {{"plan", "llama-1m", "--machine=v100", eight, two_gpus, "--training.dtype=bfloat16"},
     {"training.dtype = 'bfloat16': the device 'V100 SXM2 16 GB' has no rates for it (use float16)"}},
    {{"plan", "llama-1m", "--machine=v100", eight, two_gpus, "--training.linear_dtype=float8"},
     {"training.linear_dtype = 'float8': the device 'V100 SXM2 16 GB' has no rates for it"}},
    {{"plan", "llama-1m", eight, two_gpus, "--machine"},
     {"node[0].device.formats is missing", "node[0].device.formats.float32"},
     "name = 'bare'\nsource = 'none'\n[[node]]\nnum_devices = 8\n[node.device]\nmemory_gib = 16\nmemory_gb_per_s = "
     "900\n"
     "[node.link]\nbandwidth_gb_per_s = 150\n"},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--profile=echelom"},
     {"there is no software profile 'echelom'; did you mean echelon?"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--compare=/nonexistent.toml"},
     {"'/nonexistent.toml' cannot be read"}},
    {{"plan", "llama-1m", on_h100, eight, two_gpus, "--parallelism.context_parallel_degree=4"},
     {"parallelism.context_parallel_degree = 4 does not divide --gpus=2 (use 2)"}},
    {{"plan", "llama-1m", on_h100, "--improve"}, {"--improve needs a config file, and 'llama-1m' is none"}},
};
INSTANTIATE_TEST_SUITE_P(Plan, BadInputs, testing::ValuesIn(plan_arguments));

const BadInput other_commands[] = {
    {{"prepare"}, {"--input"}},
    {{"prepare", ECHELON_SOURCE_DIR "/src/base"}, {"--output is required"}},
    {{"prepare", ECHELON_SOURCE_DIR "/src/base", "--output=/dev/null/corpus"}, {"--output=/dev/null/corpus"}},
    {{"prepare", "/nonexistent/text", "--output=/nonexistent/out"}, {"/nonexistent/text"}},
    {{"prepare", "--output", scratch_folder() + "/empty-corpus", "--input"}, {"--input", "no text"}, ""},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--vocabsize=5"},
     {"--vocabsize=5", "did you mean --vocab-size?"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--vocab-size=many"}, {"--vocab-size", "many"}},
    {{"prepare", "/nonexistent/text", "--output=", "--vocab-size=300"}, {"--output is empty"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--seed=99999999999999999999"},
     {"--seed=99999999999999999999"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--vocab-size=100"}, {"--vocab-size=100", "(use 257)"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--min-frequency=0"}, {"--min-frequency=0", "(use 1)"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--threads=-7"}, {"--threads=-7 is negative"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--pattern=gpt2"}, {"--pattern requires --tokenizer"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--template"}, {"--template requires --tokenizer"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--no-separator", "--separator=x"},
     {"--separator=x excludes --no-separator; omit one of them"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--tokenizer=x", "--vocab-size=300"},
     {"--vocab-size", "excludes", "--tokenizer"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--tokenizer=x", "--min-frequency=3"},
     {"--min-frequency", "excludes", "--tokenizer"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--validation-fraction=nan"}, {"--validation-fraction=nan"}},
    {{"eval"}, {"eval has no model: give its folder"}},
    {{"eval", "/tmp", "--model=/usr"}, {"eval '/tmp' --model=/usr are two models"}},
    {{"eval", "--model=/nonexistent/model"}, {"/nonexistent/model"}},
    {{"eval", good}, {"checkpoint.initial_load_path"}},
    {{"inspect"}, {"path"}},
    {{"inspect", ""}, {"''"}},
    {{"inspect", "/nonexistent/thing"}, {"'/nonexistent/thing'", ".idx"}},
    {{"inspect", "/dev"}, {"no config.json"}},
    {{"inspect", "llama-9m"}, {"there is no such model folder", "did you mean the preset llama-1m?"}},
    {{"inspect", "llama-1m", "--verify"}, {"--verify: llama-1m is a config, which has no digests"}},
    {{"inspect", "corpus/train", "--sample=0"}, {"--sample: 0 is below 1 (use 1)"}},
    {{"inspect", "/nonexistent/step-5", "--verify"},
     {"inspect '/nonexistent/step-5' --verify: there is no such folder"}},
    {{"prepare", "/nonexistent/text", "--output=/tmp/x", "--chat", "--tokenizer=x", "--max-tokens=-3"},
     {"--max-tokens: -3 is below 0 (use 0)"}},
    {{"convert", "/nonexistent/model", "/nonexistent/to", "--merge=/tmp"}, {"--merge=/tmp has no adapters"}},
    {{"simulate", "llama-1m", "--machine=h100", "--slow=rank=5:2"},
     {"--slow rank=5:2 is not a rank: the last one is 0 (use 0)"}},
    {{"generate"}, {"--model"}},
    {{"generate", "one", "--model=two"}, {"'one' is a second value of --model; give it once"}},
    {{"generate", "--model=/nonexistent/model"}, {"/nonexistent/model"}},
    {{"generate", "--model="}, {"--model"}},
    {{"generate", "--model=/nonexistent/model", "--parallelism.context_parallel_degree=2"},
     {"takes no key of a config", "--parallelism.context_parallel_degree=2",
      "it runs without context, tensor and pipeline parallelism; ranks divide experts alone: --expert-parallel; "
      "echelon eval uses all layouts"}},
    {{"generate", "--model=/nonexistent/model", "--prompt", "--json"}, {"--prompt has no value"}},
    {{"generate", "--model=/nonexistent/model", "--topk=5"}, {"--topk=5", "did you mean --top-k?"}},
    {{"generate", "--model=/nonexistent/model", "--temperature=hot"}, {"--temperature", "hot"}},
};
INSTANTIATE_TEST_SUITE_P(Commands, BadInputs, testing::ValuesIn(other_commands));

// There is nobody to tell, but a scheduler reads the status.
TEST(BadInput, AStandardErrorThatCannotBeWrittenEndsNothing) {
  const std::string echelon = std::string(ECHELON_BINARY_DIR) + "/echelon ";
  const auto status_of = [&](const std::string& rest) { return run_command({"sh", "-c", echelon + rest}).status; };
  EXPECT_EQ(status_of("train --model.preset=none 2>/dev/full"), 2);
  EXPECT_EQ(status_of("--version 2>/dev/full"), 0);
  EXPECT_EQ(status_of("--help >/dev/full 2>/dev/full"), 1);
}

TEST(BadInput, AGpuWithoutThePlugInNamesTheCommandThatBuildsIt) {
  setenv("ECHELON_CUDA_PLUGIN", "/nowhere/libechelon_cuda.so", 1);
  const Outcome outcome =
      run_echelon({"verify", ECHELON_SOURCE_DIR "/examples/one_rank.toml", "--training.device=cuda"});
  unsetenv("ECHELON_CUDA_PLUGIN");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("scripts/build cuda"));
}

// A file may contain control sequences for the terminal.
TEST(HostileFiles, NoRawByteAndNoRawExceptionReachTheTerminal) {
  const auto folder = std::filesystem::path(scratch_folder()) / "echelon-hostile";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1,
                                              "vocab_size": 8, "n_positions": 8})";
  const std::string header = R"({"\u001b[31m": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  std::ofstream weights(folder / "model.safetensors", std::ios::binary);
  weights << static_cast<char>(header.size()) << std::string(7, '\0') << header << "abcd" << std::flush;
  const Outcome listed = run_echelon({"inspect", folder});
  EXPECT_EQ(listed.status, 2);  // the model has other tensors
  EXPECT_THAT(listed.out, HasSubstr("\\x1b[31m"));
  EXPECT_THAT(listed.out, testing::Not(HasSubstr("\x1b")));

  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_symlink("model.safetensors", folder / "model.safetensors");
  const Outcome looped = run_echelon({"inspect", folder});
  EXPECT_EQ(looped.status, 2);
  EXPECT_THAT(looped.err, HasSubstr("model.safetensors: Too many levels of symbolic links"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace echelon
