// A folder that is converted, or read and written again, keeps what Echelon does not compute with.
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/hf_reader.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string tokenizer_text =
    R"({"added_tokens":[{"id":7,"content":"<|im_end|>"},{"id":9,"content":"<|endoftext|>"}],"model":{"type":"BPE"}})";

const std::pair<const char*, std::string> companions[] = {
    {"tokenizer.json", tokenizer_text},
    {"tokenizer_config.json", R"({"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"})"},
    {"special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>"}})"},
    {"chat_template.jinja", "{% for m in messages %}{{ m }}{% endfor %}"},
    {"additional_chat_templates/tool_use.jinja", "{{ tools }}"},
    {"generation_config.json", "{\"eos_token_id\": [7, 9],  \"top_p\": 0.8}"},
};

json config_in(const std::filesystem::path& folder) { return json::parse(get(folder / "config.json")); }

void write_weights(const ModelWriter::Options& options) {
  ModelWriter writer(options);
  writer.begin();
  for (const NamedShape& parameter : global_parameters(options.model))
    writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, whole(parameter).data());
  writer.finish();
}

/// A chat model of Qwen's, with fields and files that are not ours.
void put_chat_model(const std::filesystem::path& folder) {
  ModelSpec model = tiny_model(Family::qwen2, true);
  write_weights({.folder = folder, .model = model, .dtype = DType::bfloat16});
  json config = config_in(folder);
  config.update({{"eos_token_id", {7, 9}},
                 {"bos_token_id", 9},
                 {"pad_token_id", 3},
                 {"attention_dropout", 0.1},
                 {"use_cache", false},
                 {"sliding_window", 131072},
                 {"hidden_act", "swish"},
                 {"transformers_version", "4.40.1"},
                 {"a_field_of_tomorrow", {{"a", 1}}}});
  config.erase("rope_parameters");
  config.erase("dtype");
  put(folder / "config.json", config.dump());
  std::filesystem::create_directory(folder / "additional_chat_templates");
  for (const auto& [name, text] : companions) put(folder / name, text);
}

void expect_same_companions(const std::filesystem::path& folder) {
  for (const auto& [name, text] : companions) EXPECT_EQ(get(folder / name), text) << name;
}

TEST(WholeFolder, ComesBackFromAConversion) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  put(scratch / "in/README.md", "not of the model");
  convert_model(scratch / "in", scratch / "out", {});
  expect_same_companions(scratch / "out");
  EXPECT_EQ(get(scratch / "out/model.safetensors"), get(scratch / "in/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "out/README.md"));
  json before = config_in(scratch / "in"), after = config_in(scratch / "out");
  for (const auto& [key, value] : before.items()) EXPECT_EQ(after.at(key), value) << key;
  // What transformers 5 reads has been added.
  EXPECT_EQ(after.at("dtype"), "bfloat16");
  EXPECT_EQ(after.at("rope_parameters"), json({{"rope_theta", 10000.0}, {"rope_type", "default"}}));
  EXPECT_EQ(read_model_spec(scratch / "out"), read_model_spec(scratch / "in"));
}

TEST(WholeFolder, ComesBackInAnotherDtype) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  convert_model(scratch / "in", scratch / "out", {.dtype = DType::float32});
  EXPECT_EQ(config_in(scratch / "out").at("torch_dtype"), "float32");
  const NamedShape embedding = global_parameters(read_model_spec(scratch / "out"))[0];
  std::vector<double> values(static_cast<std::size_t>(embedding.sizes.num_elements()));
  ModelReader(scratch / "out").read(embedding.name, TensorSlice(embedding.sizes), DType::float64, values.data());
  EXPECT_EQ(values, whole(embedding));
}

// A folder may hold its norms in float32 and its matrices in bfloat16.
TEST(WholeFolder, KeepsTheDtypeOfEachTensor) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, false);
  write_weights({.folder = scratch / "in",
                 .model = model,
                 .dtype = DType::bfloat16,
                 .dtypes = {{"model.norm.weight", DType::float32}}});
  convert_model(scratch / "in", scratch / "out", {});
  EXPECT_EQ(get(scratch / "out/model.safetensors"), get(scratch / "in/model.safetensors"));
}

TEST(WholeFolder, ComesAlongFromTheInitialModel) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  const ModelSpec model = read_model_spec(scratch / "in");
  write_weights({.folder = scratch / "out", .model = model, .source = scratch / "in", .training = {.steps = 5}});
  expect_same_companions(scratch / "out");
  EXPECT_EQ(config_in(scratch / "out").at("eos_token_id"), json({7, 9}));
  EXPECT_EQ(config_in(scratch / "out").at("training_steps"), 5);
  // It may be replaced, with the files that came along.
  write_weights({.folder = scratch / "out", .model = model, .source = scratch / "in"});
  expect_same_companions(scratch / "out");
  // The model of another family has another folder.
  write_weights({.folder = scratch / "other", .model = tiny_model(Family::llama, true), .source = scratch / "in"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "other/tokenizer.json"));
}

// Another tokenizer than the initial model's has other special tokens, another template and other defaults.
TEST(WholeFolder, TakesTheFilesNextToAnotherTokenizer) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  std::filesystem::create_directory(scratch / "mine");
  put(scratch / "mine/tokenizer.json", "another tokenizer");
  put(scratch / "mine/tokenizer_config.json", R"({"eos_token": {"content": "</s>"}, "bos_token": "<s>"})");
  const ModelSpec model = read_model_spec(scratch / "in");
  write_weights({.folder = scratch / "out",
                 .model = model,
                 .tokenizer = scratch / "mine/tokenizer.json",
                 .special_tokens = [](const auto&) { return SpecialTokens{.bos = 1, .eos = 2}; },
                 .source = scratch / "in"});
  EXPECT_EQ(get(scratch / "out/tokenizer_config.json"), get(scratch / "mine/tokenizer_config.json"));
  for (const char* stale : {"generation_config.json", "chat_template.jinja", "special_tokens_map.json"})
    EXPECT_FALSE(std::filesystem::exists(scratch / "out" / stale)) << stale;
  const json config = config_in(scratch / "out");
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_TRUE(config.at("pad_token_id").is_null());
  EXPECT_EQ(config.at("a_field_of_tomorrow"), json({{"a", 1}}));
}

template <class Run>
std::string refusal_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Python writes Infinity, which JSON has not, and transformers 5 an object.
TEST(WholeFolder, KeepsFieldsThatAreNotFinite) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  std::string config = get(scratch / "in/config.json");
  config.insert(1, "\"a_limit\": -Infinity, ");
  put(scratch / "in/config.json", config);
  convert_model(scratch / "in", scratch / "out", {});
  EXPECT_EQ(config_in(scratch / "out").at("a_limit"), json({{"__float__", "-Infinity"}}));
}

// A folder of templates is one of the model's, of other files is not.
TEST(WholeFolder, IsNotReplacedWithOtherFilesAmongItsTemplates) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  const ModelWriter::Options options = {
      .folder = scratch / "out", .model = read_model_spec(scratch / "in"), .source = scratch / "in"};
  write_weights(options);
  EXPECT_EQ(refusal_of([&] { write_weights(options); }), "");
  put(scratch / "out/additional_chat_templates/notes.txt", "mine");
  EXPECT_THAT(refusal_of([&] { write_weights(options); }),
              HasSubstr("contains 'additional_chat_templates', which is not part of a model"));
}

// Though most tensors have another: norms and biases in float32.
TEST(WholeFolder, KeepsTheDtypeOfItsConfig) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::qwen2, true);
  write_weights({.folder = scratch / "in", .model = model, .dtype = DType::bfloat16});
  std::map<std::string, DType> dtypes = HuggingFaceReader(scratch / "in").dtypes();
  for (auto& [name, dtype] : dtypes)
    if (name != "model.embed_tokens.weight") dtype = DType::float32;
  write_weights({.folder = scratch / "in", .model = model, .dtype = DType::bfloat16, .dtypes = dtypes});
  convert_model(scratch / "in", scratch / "out", {});
  EXPECT_EQ(HuggingFaceReader(scratch / "out").dtypes(), dtypes);
  EXPECT_EQ(config_in(scratch / "out").at("dtype"), "bfloat16");
}

TEST(WholeFolder, RefusesWhatWouldChangeTheComputation) {
  const ScratchFolder scratch;
  put_chat_model(scratch / "in");
  const json config = config_in(scratch / "in");
  const std::pair<const char*, json> fields[] = {
      {"final_logit_softcapping", 30.0}, {"embedding_multiplier", 12.0}, {"num_experts", 64}, {"alibi", true},
      {"no_rope_layers", {1, 0}},        {"vision_config", {{"a", 1}}}};
  for (const auto& [key, value] : fields) {
    json changed = config;
    changed[key] = value;
    put(scratch / "in/config.json", changed.dump());
    EXPECT_THAT(error_of([&] { (void)read_model_spec(scratch / "in"); }),
                ::testing::AllOf(HasSubstr(key), HasSubstr("would change the computation"), HasSubstr("qwen2")));
  }
  json neutral = config;
  neutral.update({{"final_logit_softcapping", nullptr}, {"residual_multiplier", 1.0}, {"alibi", false}});
  put(scratch / "in/config.json", neutral.dump());
  EXPECT_NO_THROW((void)read_model_spec(scratch / "in"));
}

}  // namespace
}  // namespace echelon
