#include "spec/config/config_reader.h"
#include "scratch_folder.h"

#include "base/error.h"
#include "spec/config/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::string write_file(const std::string& text) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." + test->name() + ".toml";
  for (char& c : name)
    if (c == '/') c = '_';
  const std::string path = std::filesystem::path(scratch_folder()) / name;
  std::ofstream(path) << text;
  return path;
}

RunConfig read(const std::string& text, std::vector<std::string> arguments = {}) {
  return read_run_config({.path = write_file(text), .arguments = std::move(arguments), .read_model = {}});
}

TEST(ConfigReader, ReadsFileAndCommandLine) {
  const RunConfig config =
      read(R"(
[model]
preset = "llama-10m"
rope-theta = 500000
[training]
steps = 50
seq_len = 128
[parallelism]
pipeline_parallel_schedule = "gpipe"
pipeline_parallel_degree = 2
pipeline_parallel_layout = [3, 5]
[optimizer]
lr = 1
)",
           {"--training.steps=7", "--training.seq-len", "64", "--parallelism.sequence-parallel", "--data.path=/tmp/a=b",
            "--parallelism.pipeline_parallel_layout=5,3", "--optimizer.eps=1e-6"});
  EXPECT_EQ(config.model.hidden_size, preset("llama-10m").hidden_size);
  EXPECT_EQ(config.model.rope_theta, 500000.0);
  EXPECT_EQ(config.training.steps, 7);
  EXPECT_EQ(config.training.seq_len, 64);
  EXPECT_EQ(config.parallelism.pipeline_parallel_schedule, PipelineSchedule::gpipe);
  EXPECT_EQ(config.parallelism.pipeline_parallel_layout.counts, (std::vector<std::int64_t>{5, 3}));
  EXPECT_TRUE(config.parallelism.sequence_parallel);
  EXPECT_EQ(config.data.path, "/tmp/a=b");
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.eps, 1e-6);
}

TEST(ConfigReader, SchedulesAreReadInAnyLetterCase) {
  for (const std::string name : {"1F1B", "1f1b"})
    EXPECT_EQ(read("[model]\npreset = 'llama-1m'", {"--parallelism.pipeline_parallel_schedule=" + name})
                  .parallelism.pipeline_parallel_schedule,
              PipelineSchedule::one_f_one_b);
}

TEST(ConfigReader, BuildsAModelFromItsSizes) {
  const RunConfig config = read(R"(
[model]
model_type = "gpt2"
hidden_size = 48
num_hidden_layers = 2
num_attention_heads = 3
vocab_size = 101
max_position_embeddings = 256
)");
  EXPECT_EQ(config.model.norm, NormKind::layer_norm);
  EXPECT_EQ(config.model.num_key_value_heads, 3);
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.intermediate_size, 192);
  EXPECT_TRUE(config.model.tie_word_embeddings);
}

TEST(ConfigReader, FieldsChangeAPreset) {
  const RunConfig config = read(
      "[model]\npreset = 'llama3-405b'\nnum_hidden_layers = 4\nhidden_size = 8192\nrope_scaling = {factor = 32}\n");
  EXPECT_EQ(config.model.num_hidden_layers, 4);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.model.num_key_value_heads, 8);
  EXPECT_EQ(config.model.rope_scaling->factor, 32);
  EXPECT_EQ(config.model.rope_scaling->original_max_position_embeddings, 8192);
  EXPECT_FALSE(read("[model]\npreset = 'llama3-405b'", {"--model.rope_scaling.rope_type=default"})
                   .model.rope_scaling.has_value());
  EXPECT_TRUE(
      read("[model]\npreset = 'llama3-8b'\nrope_scaling = {rope_type = 'llama3'}").model.rope_scaling.has_value());
}

TEST(ConfigReader, AsksForTheModelOfAFolder) {
  const auto read_model = [](const std::string& folder) {
    EXPECT_EQ(folder, "some/folder");
    return preset("gpt2-124m");
  };
  const RunConfig config = read_run_config(
      {.path = "", .arguments = {"--model.path=some/folder", "--model.vocab_size=50304"}, .read_model = read_model});
  EXPECT_EQ(config.model.family, Family::gpt2);
  EXPECT_EQ(config.model.vocab_size, 50304);
}

TEST(ConfigReader, WhatIsWrittenReadsBackTheSame) {
  for (const std::string_view name : preset_names()) {
    RunConfig config;
    config.model = preset(name);
    config.training.seq_len = 512;
    config.training.max_norm = 0.1 + 0.2;
    config.optimizer.lr = 1.0 / 3;
    config.lr_scheduler.min_lr_factor = 4.9e-324;
    config.data.seed = std::numeric_limits<std::int64_t>::min();
    config.data.path = "a \"quoted\" \\ path\nwith\ttwo lines, \x7f and \xc3\xa9";
    config.checkpoint.enable = false;
    config.parallelism.pipeline_parallel_degree = 2;
    config.parallelism.pipeline_parallel_layout.counts = {1, config.model.num_hidden_layers - 1};
    config.lr_scheduler.decay = LrDecay::wsd;
    config.training.recompute = {BlockOperation::core_attn, BlockOperation::mlp};
    config.parallelism.order = parse_axis_order("order", {"pp-dp-tp"});
    config.training.grad_dtype = config.training.dtype = DType::bfloat16;
    config.training.reduce_dtype = DType::float32;
    config.optimizer.moments_dtype = DType::bfloat16;
    config.training.device = DeviceChoice::cuda;
    config.comm.backend = CommBackend::nccl;
    config.comm.bind = RankBinding::none;
    EXPECT_EQ(read(to_toml(config)), config) << to_toml(config);
  }
}

TEST(ConfigReader, ALayoutIsAListOrLetters) {
  const std::string degrees =
      "[model]\npreset = 'llama-1m'\n[training]\nglobal_batch_size = 4\n[parallelism]\npipeline_parallel_degree = "
      "2\npipeline_parallel_schedule = 'zb-v'\n";
  const RunConfig letters = read(degrees + "pipeline_parallel_layout = 'Et|t|t|tL'");
  EXPECT_EQ(letters.parallelism.pipeline_parallel_layout, (PipelineLayout{.counts = {}, .letters = "Et|t|t|tL"}));
  EXPECT_EQ(read(to_toml(letters)), letters);
  EXPECT_EQ(read(degrees, {"--parallelism.pipeline_parallel_layout=Et|t|t|tL"}), letters);
  EXPECT_EQ(
      read(degrees, {"--parallelism.pipeline_parallel_layout=[2,1,1,2]"}).parallelism.pipeline_parallel_layout.counts,
      (std::vector<std::int64_t>{2, 1, 1, 2}));
}

// A checkpoint holds its config as this text.
TEST(ConfigReader, KeepsWhatNoKeyNames) {
  RunConfig config = read("[model]\npreset = 'llama-1m'");
  EXPECT_THAT(to_toml(config), ::testing::Not(HasSubstr("mechanisms")));
  ModelSpec& model = config.model;
  model.norm = NormKind::layer_norm;
  model.mlp = MlpKind::geglu;
  model.norm_placement = NormPlacement::both;
  model.mlp_bias = model.use_parallel_residual = true;
  model.attention_multiplier = 0.0078125;
  model.embedding_multiplier = 1.0 / 3;
  model.partial_rotary_factor = 0.75;
  model.sliding_window = 8;
  model.layer_types = {LayerType::sliding_attention, LayerType::full_attention, LayerType::sliding_attention,
                       LayerType::full_attention};
  model.no_rope_layers = {1, 1, 1, 0};
  model.rope_scaling = RopeScaling{.rope_type = RopeType::longrope,
                                   .factor = 4,
                                   .short_factor = std::vector<double>(12, 1.0),
                                   .long_factor = std::vector<double>(12, 1.1)};
  model.sliding_rope = RopeSpec{.rope_theta = 123, .scaling = RopeScaling{.rope_type = RopeType::linear, .factor = 2}};
  model.use_parallel_residual = false;
  EXPECT_EQ(read(to_toml(config)), config) << to_toml(config);
  EXPECT_THAT([] { (void)read("[model]\npreset = 'llama-1m'\nmechanisms = 'mpl=geglu'"); },
              ThrowsMessage<Error>(HasSubstr("model.mechanisms has 'mpl', which is no mechanism; did you mean mlp?")));
  EXPECT_THAT(
      [] { (void)read("[model]\npreset = 'llama-1m'\nmechanisms = 'mlp=relu'"); },
      ThrowsMessage<Error>(HasSubstr("model.mechanisms has mlp = 'relu', which is no value of it (use swiglu)")));
}

TEST(ConfigReader, AnEmptyChoiceIsTheDefault) {
  const RunConfig config = read("[model]\npreset = 'llama-1m'\n[optimizer]\nmoments_dtype = ''",
                                {"--training.grad_dtype=", "--training.linear_dtype="});
  EXPECT_EQ(config.optimizer.moments_dtype, std::nullopt);
  EXPECT_EQ(config.training.grad_dtype, std::nullopt);
  EXPECT_EQ(config.training.linear_dtype, std::nullopt);
  EXPECT_THAT(to_toml(config), HasSubstr("\nlinear_dtype = \"\"\n"));
  EXPECT_THAT(to_toml(config), HasSubstr("\ndevice = \"auto\"\n"));
}

// The allowed formats depend on the last value of training.dtype, whether it is before or after them.
TEST(ConfigReader, FormatsGoWithTheLastDtype) {
  const RunConfig config =
      read("[model]\npreset = 'llama-1m'\n[training]\nreduce_dtype = 'float16'\ndtype = 'float16'\n",
           {"--training.reduce_dtype=bfloat16", "--training.dtype=bfloat16"});
  EXPECT_EQ(config.training.dtype, DType::bfloat16);
  EXPECT_EQ(config.training.reduce_dtype, DType::bfloat16);
  EXPECT_THAT([] { (void)read("[model]\npreset = 'llama-1m'\n[training]\nreduce_dtype = 'x'\ndtype = 'float64'\n"); },
              ThrowsMessage<Error>("training.reduce_dtype = 'x' is not supported with training.dtype = 'float64', only "
                                   "float64 (use 'float64')"));
}

struct UnknownName {
  const char *argument, *sentence;
};

class UnknownNames : public testing::TestWithParam<UnknownName> {};

TEST_P(UnknownNames, AreRefusedInTheWordsOfTheCheck) {
  EXPECT_THAT([] { (void)read("[model]\npreset = 'llama-1m'", {GetParam().argument}); },
              ThrowsMessage<Error>(GetParam().sentence));
}

const UnknownName unknown_names[] = {
    {"--training.dtype=bfloat",
     "training.dtype = 'bfloat' is not one of float32, bfloat16, float16, float64; did you mean bfloat16?"},
    {"--training.dtype=BFloat16",
     "training.dtype = 'BFloat16' is not one of float32, bfloat16, float16, float64; did you mean bfloat16?"},
    {"--training.linear_dtype=float9", "training.linear_dtype = 'float9' is not one of float8; did you mean float8?"},
    {"--training.reduce_dtype=bfloat",
     "training.reduce_dtype = 'bfloat' is not supported with training.dtype = 'float32', only float32 or bfloat16 (use "
     "'bfloat16')"},
    {"--training.float32_matmul_precision=hihg",
     "training.float32_matmul_precision = 'hihg' is not one of highest, high; did you mean high?"},
    {"--training.device=gpu", "training.device = 'gpu' is not one of auto, cpu, cuda; did you mean cuda?"},
    {"--optimizer.name=adam", "optimizer.name = 'adam' is not one of adamw; did you mean adamw?"},
    {"--optimizer.moments_dtype=bf16",
     "optimizer.moments_dtype = 'bf16' is not one of float32, bfloat16; did you mean bfloat16?"},
    {"--comm.backend=threads", "comm.backend = 'threads' is not one of auto, thread, mpi, nccl; did you mean thread?"},
    {"--comm.bind=no", "comm.bind = 'no' is not one of auto, none; did you mean none?"},
};
INSTANTIATE_TEST_SUITE_P(All, UnknownNames, testing::ValuesIn(unknown_names));

TEST(ConfigReader, RecomputeIsAWordOrAListOfOperations) {
  using enum BlockOperation;
  const auto from_file = [](const std::string& value) {
    return read("[model]\npreset = 'llama-1m'\n[training]\nrecompute = " + value).training.recompute;
  };
  const auto from_line = [](const std::string& value) {
    return read("[model]\npreset = 'llama-1m'", {"--training.recompute=" + value}).training.recompute;
  };
  EXPECT_EQ(from_file("'none'"), BlockOperations());
  EXPECT_EQ(from_file("[]"), BlockOperations());
  EXPECT_EQ(from_file("'Selective'"), attention_internals);
  EXPECT_EQ(from_file("'full'"), whole_block);
  EXPECT_EQ(from_file("'mlp'"), BlockOperations({mlp}));
  EXPECT_EQ(from_file("['core_attn', 'mlp']"), BlockOperations({core_attn, mlp}));
  EXPECT_EQ(from_file("['qkv_proj', 'core_attn']"), attention_internals);
  EXPECT_EQ(from_line("full"), whole_block);
  EXPECT_EQ(from_line("core_attn,mlp"), BlockOperations({core_attn, mlp}));
  EXPECT_EQ(from_line("['core_attn', \"mlp\"]"), BlockOperations({core_attn, mlp}));
  EXPECT_EQ(names_of({qkv_proj, core_attn, o_proj, mlp}), std::vector<std::string>({"full"}));
  EXPECT_EQ(names_of({mlp, core_attn}), (std::vector<std::string>{"core_attn", "mlp"}));
  EXPECT_EQ(names_of({shared_expert, router}), (std::vector<std::string>{"router", "shared_expert"}));
  EXPECT_EQ(names_of({router, mlp}), std::vector<std::string>({"mlp"}));
}

TEST(ConfigReader, AnOrderIsAStringOrAList) {
  const auto from_file = [](const std::string& value) {
    return read("[model]\npreset = 'llama-1m'\n[parallelism]\norder = " + value).parallelism.order;
  };
  const auto from_line = [](const std::string& value) {
    return read("[model]\npreset = 'llama-1m'", {"--parallelism.order=" + value}).parallelism.order;
  };
  const AxisOrder megatron = parse_axis_order("order", {"tp-cp-dp-pp"});
  EXPECT_NE(megatron, AxisOrder());
  EXPECT_EQ(from_file("'tp-cp-ep-dp-pp'"), megatron);
  EXPECT_EQ(from_file("['tp', 'cp', 'dp_shard', 'dp_replicate', 'pp']"), megatron);
  EXPECT_EQ(from_line("tp-cp-dp-pp"), megatron);
  EXPECT_EQ(from_line("[tp, cp, dp, pp]"), megatron);
}

TEST(ConfigReader, TakesItsArgumentsOutOfACommandLine) {
  std::vector<std::string> line = {
      "--json", "--training.steps", "5",       "run.toml", "--parallelism.sequence-parallel",
      "last",   "--data.pth=x",     "--no=a.b"};
  EXPECT_EQ(take_config_arguments(line),
            (std::vector<std::string>{"--training.steps", "5", "--parallelism.sequence-parallel", "--data.pth=x"}));
  EXPECT_EQ(line, (std::vector<std::string>{"--json", "run.toml", "last", "--no=a.b"}));
}

TEST(ConfigReader, HelpListsEveryKey) {
  const std::string help = config_help();
  for (const ConfigKey& key : config_keys())
    EXPECT_EQ(help.find(fmt::format("\n  {} ", key.name.substr(key.name.find('.') + 1))) != std::string::npos,
              is_there(key))
        << key.name;
  EXPECT_THAT(help, StartsWith("[model]\n"));
}

struct ConfigFault {
  const char* toml;
  std::vector<std::string> arguments;
  const char* sentence;
};

class BadConfigs : public testing::TestWithParam<ConfigFault> {};

TEST_P(BadConfigs, AreRefusedInOneSentence) {
  const ConfigFault& fault = GetParam();
  EXPECT_THAT([&] { (void)read(fault.toml, fault.arguments); }, ThrowsMessage<Error>(HasSubstr(fault.sentence)));
  try {
    (void)read(fault.toml, fault.arguments);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

const ConfigFault faults[] = {
    {"[model]\npreset = 'llama-1m'\n[training]\nstpes = 5",
     {},
     "toml:4: there is no key training.stpes; did you mean training.steps?"},
    {"[model]\npreset = 'llama-1m'\n[trainning]\nsteps = 5",
     {},
     "toml:3: there is no section [trainning]; did you mean [training]?"},
    {"[model]\npreset = 'llama-1m'\n[activation_checkpoint]\nmode = 'full'",
     {},
     "there is no section [activation_checkpoint]; did you mean training.recompute?"},
    {"[model]\npreset = 'llama-1m'\n[job]\nx = 1", {}, "there is no section [job]; the sections are model, data, "},
    {"[model]\npreset = 'llama-1m'\n[trainning]", {}, "there is no section [trainning]; did you mean [training]?"},
    {"steps = 5", {}, "toml:1: the key 'steps' is outside of a section; did you mean training.steps?"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = 'many'",
     {},
     "training.steps = \"many\" is not an integer, such as 100"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = 1.5", {}, "toml:4: training.steps = 1.5 is not an integer"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = 1e20", {}, "training.steps = 1e+20 is above 2147483647 (use "},
    {"[model]\npreset = 'llama-1m'",
     {"--training.steps=99999999999999999999"},
     "training.steps = 99999999999999999999 is above 2147483647 (use 2147483647)"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.seed=18446744073709551615"},
     "training.seed = 18446744073709551615 is above 9223372036854775807 (use 9223372036854775807)"},
    {"[model]\npreset = 'llama-1m'",
     {"--data.seed=-9223372036854775809"},
     "data.seed = -9223372036854775809 is below -9223372036854775808 (use -9223372036854775808)"},
    {"[model]\npreset = 'llama-1m'", {"--training.steps=inf"}, "training.steps = inf is not an integer"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = 5\nsteps = 6", {}, "toml:5: "},
    {"[model]\npreset = 'llama-1m'\n[training\nsteps = 5", {}, "toml:"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = 2020-01-01", {}, "training.steps is a date or a time"},
    {"[model]\npreset = 'llama-1m'\n[training]\nsteps = [1]", {}, "training.steps = [1] is not an integer"},
    {"[model]\npreset = 'llama-1m'\n[training.steps]\nx = 1", {}, "there is no key training.steps.x"},
    {"[model]\npreset = 'llama-1m'\n[parallelism]\npipeline_parallel_layout = ['a']",
     {},
     "a list with an element that is not an integer"},
    {"[model]\npreset = 'llama-2m'", {}, "model.preset = 'llama-2m' is not a preset; did you mean llama-1m?"},
    {"[model]\npreset = 5", {}, "model.preset = 5 is not a string"},
    {"[model]\npreset = 'llama-1m'\npath = 'x'", {}, "both set"},
    {"[model]\npath = 'x'", {}, "model.path = 'x' cannot be read"},
    {"", {}, "the config has no model: set model.preset, model.path or model.model_type"},
    {"[model]\nmodel_type = 'gpt3'",
     {},
     "model.model_type = 'gpt3' is not a family that Echelon has; did you mean gpt2?"},
    {"[model]\nmodel_type = 'gpt2'", {}, "model.hidden_size is missing"},
    {"[model]\npreset = 'gpt2-124m'\nmodel_type = 'llama'", {}, "contradicts"},
    {"[model]\npreset = 'gpt2-124m'\nrope_theta = 10000.0",
     {},
     "model.rope_theta = 10000 does not apply to model_type gpt2 (omit it)"},
    {"[model]\npreset = 'gpt2-124m'\nrms_norm_eps = 1e-5",
     {},
     "model.rms_norm_eps = 1e-05 does not apply to model_type gpt2 (omit it)"},
    {"[model]\npreset = 'llama-1m'\nhidden_size = 127",
     {},
     "model.hidden_size = 127 is not a multiple of model.num_attention_heads = 4 (use 124, or set model.head_dim)"},
    {"[model]\npreset = 'llama-1m'\nhidden_size = 1000000",
     {},
     "model.hidden_size = 1000000 makes heads of 250000 with model.num_attention_heads = 4; a head has at most 65536"},
    {"[model]\npreset = 'llama-1m'\nrope_scaling = {rope_type = 'yarn'}",
     {},
     "model.rope_scaling.rope_type = 'yarn' is not supported"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.stpes=5"},
     "command line: there is no key training.stpes; did you mean training.steps?"},
    {"[model]\npreset = 'llama-1m'", {"--training.steps=5x"}, "training.steps = \"5x\" is not an integer"},
    {"[model]\npreset = 'llama-1m'", {"--training.steps"}, "--training.steps has no value"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.deterministic=yes"},
     "training.deterministic = \"yes\" is not true or false; did you mean true?"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.float32_matmul_precision=hihg"},
     "training.float32_matmul_precision = 'hihg' is not one of highest, high; did you mean high?"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.float32_matmul_precision=medium"},
     "'medium' is not supported yet; use highest or high"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.float32_matmul_precision=high", "--training.dtype=bfloat16"},
     "does not apply to training.dtype = 'bfloat16'"},
    {"[model]\npreset = 'llama-1m'\n[training]\ndtype = 5",
     {},
     "toml:4: training.dtype = 5 is not a string, such as \"float32\""},
    {"[model]\npreset = 'llama-1m'\n[training]\ndtype = ['float32']",
     {},
     "toml:4: training.dtype is a list, which is not supported here (use one of its elements)"},
    {"[model]\npreset = 'llama-1m'", {"training.steps=5"}, "'training.steps=5' is not an option"},
    {"[model]\npreset = 'llama-1m'", {"--"}, "'--' is not an option"},
    {"[model]\npreset = 'llama-1m'", {"--=5"}, "there is no key"},
    {"[model]\npreset = 'llama-1m'",
     {"--lr_scheduler.decay=cosin"},
     "lr_scheduler.decay = 'cosin' is not one of none, cosine, linear, wsd; did you mean cosine?"},
    {"[model]\npreset = 'llama-1m'",
     {"--parallelism.pipeline_parallel_layout=a"},
     "parallelism.pipeline_parallel_layout = 'a' has 'a', which is not one of E, t, L"},
    {"[model]\npreset = 'llama-1m'", {"--training.seq_len=0"}, "training.seq_len = 0 is below 1"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute=selectiv"},
     "training.recompute = 'selectiv' is not one of none, selective, full, qkv_proj, qk_norm, core_attn, o_proj, mlp, "
     "router, experts, shared_expert; did you mean selective?"},
    {"[model]\npreset = 'llama-1m'",
     {"--parallelism.order=tp-dp-zp"},
     "parallelism.order = 'tp-dp-zp': 'zp' is not one of tp"},
    {"[model]\npreset = 'llama-1m'\n[parallelism]\norder = 3",
     {},
     "parallelism.order = 3 is not a string or a list of names, such as \"tp-cp-dp_shard"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute=core_att,mlp"},
     "training.recompute = 'core_att' is not one of qkv_proj, qk_norm, core_attn"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute=core_attn,shared_experts"},
     "o_proj, mlp, router, experts, shared_expert; did you mean shared_expert?"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute=mlp,full"},
     "training.recompute = 'full' is not one of qkv_proj"},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute=layernorm"},
     "training.recompute = 'layernorm' saves no memory"},
    {"[model]\npreset = 'llama-1m'\n[training]\nrecompute = [1]",
     {},
     "training.recompute is a list with an element that is not a string"},
    {"[model]\npreset = 'llama-1m'\n[training]\nrecompute = true",
     {},
     "training.recompute = true is not a name or a list of names, such as \"none\""},
    {"[model]\npreset = 'llama-1m'",
     {"--training.recompute_method=blok"},
     "training.recompute_method = 'blok' is not one of uniform, block; did you mean block?"},
};
INSTANTIATE_TEST_SUITE_P(All, BadConfigs, testing::ValuesIn(faults));

TEST(ConfigReader, RefusesFilesThatItCannotRead) {
  EXPECT_THAT([] { (void)read_run_config({.path = "/nonexistent/run.toml", .arguments = {}, .read_model = {}}); },
              ThrowsMessage<Error>(HasSubstr("'/nonexistent/run.toml' cannot be read")));
  EXPECT_THAT([] { (void)read_run_config({.path = scratch_folder(), .arguments = {}, .read_model = {}}); },
              ThrowsMessage<Error>(HasSubstr("is a folder")));
  const std::string below_a_file = write_file("") + "/run.toml";
  EXPECT_THAT([&] { (void)read_run_config({.path = below_a_file, .arguments = {}, .read_model = {}}); },
              ThrowsMessage<Error>(EndsWith("run.toml' cannot be read: Not a directory")));
}

}  // namespace
}  // namespace echelon
