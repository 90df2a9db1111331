// Folders of PEFT's with modules_to_save.
#include "base/error.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/model_writer.h"
#include "files/file.h"
#include "raw_tensors.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using ::testing::HasSubstr;

LoraConfig saving(std::vector<std::string> names) {
  LoraConfig lora;
  lora.rank = 2;
  lora.target_modules = {"q_proj"};
  lora.modules_to_save = std::move(names);
  return lora;
}

void write_folder(const std::filesystem::path& folder, const ModelSpec& model, const LoraConfig& lora) {
  ModelWriter writer(
      {.folder = folder, .model = model, .adapter = AdapterConfig{.lora = lora, .base = {}, .base_digest = {}}});
  writer.begin();
  for (const NamedShape& parameter : saved_parameters(model, lora))
    writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, whole(parameter).data());
  writer.finish();
}

std::vector<double> read(const AdapterReader& reader, const NamedShape& parameter) {
  std::vector<double> values(static_cast<std::size_t>(parameter.sizes.num_elements()));
  reader.read(parameter.name, TensorSlice(parameter.sizes), DType::float64, values.data());
  return values;
}

std::map<std::string, FileTensor> header_of(const std::filesystem::path& folder) {
  return read_safetensors_header(folder / "adapter_model.safetensors");
}

nlohmann::json config_of(const std::filesystem::path& folder) {
  return nlohmann::json::parse(read_text(folder / "adapter_config.json"));
}

TEST(SavedModulesInFiles, HavePeftsNames) {
  const ScratchFolder scratch;
  for (const bool tied : {false, true}) {
    const ModelSpec model = tiny_model(Family::llama, tied);
    const std::filesystem::path folder = scratch / (tied ? "tied" : "own");
    const LoraConfig lora = saving({"embed_tokens", "norm"});
    write_folder(folder, model, lora);
    const auto tensors = header_of(folder);
    EXPECT_TRUE(tensors.contains("base_model.model.model.embed_tokens.weight"));
    EXPECT_TRUE(tensors.contains("base_model.model.model.layers.1.input_layernorm.weight"));
    EXPECT_EQ(tensors.contains("base_model.model.lm_head.weight"), tied);
    EXPECT_EQ(config_of(folder).at("modules_to_save"), nlohmann::json({"embed_tokens", "norm"}));
    EXPECT_EQ(config_of(folder).value("ensure_weight_tying", false), tied);
    const AdapterReader reader(folder, model);
    EXPECT_EQ(reader.config().lora, lora);
    for (const NamedShape& parameter : saved_parameters(model, lora))
      EXPECT_EQ(read(reader, parameter), whole(parameter)) << parameter.name;
  }
}

TEST(SavedModulesInFiles, ATieOfAnEmbeddingWithAnotherNameIsKeptByTheHeads) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::gpt2, true);
  LoraConfig lora = saving({"wte"});
  lora.target_modules = {"c_attn"};
  write_folder(scratch / "a", model, lora);
  EXPECT_EQ(config_of(scratch / "a").at("modules_to_save"), nlohmann::json({"wte", "lm_head"}));
  EXPECT_EQ(whole_parameters(model, AdapterReader(scratch / "a", model).config().lora), whole_parameters(model, lora));
}

// A file may mix dtypes: PEFT keeps what is trained in float32 next to modules of the base's dtype, or the reverse.
TEST(AdapterFolder, KeepsTheDtypeOfEachTensorWhenItIsConverted) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, false);
  ModelWriter base({.folder = scratch / "base", .model = model});
  base.begin();
  for (const NamedShape& parameter : global_parameters(model))
    base.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, whole(parameter).data());
  base.finish();
  const LoraConfig lora = saving({"lm_head"});
  ModelWriter writer({.folder = scratch / "mixed",
                      .model = model,
                      .dtype = DType::bfloat16,
                      .dtypes = {{"base_model.model.lm_head.weight", DType::float16},
                                 {"base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", DType::float64}},
                      .adapter = AdapterConfig{.lora = lora, .base = (scratch / "base").string(), .base_digest = {}}});
  writer.begin();
  for (const NamedShape& parameter : saved_parameters(model, lora))
    writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, whole(parameter).data());
  writer.finish();
  convert_model(scratch / "mixed", scratch / "again", {});
  EXPECT_EQ(read_text(scratch / "again" / "adapter_model.safetensors"),
            read_text(scratch / "mixed" / "adapter_model.safetensors"));
  convert_model(scratch / "mixed", scratch / "wide", {.dtype = DType::float32});
  for (const auto& [name, tensor] : header_of(scratch / "wide")) EXPECT_EQ(tensor.format, "F32") << name;
  try {
    convert_model(scratch / "mixed", scratch / "merged", {.merged = scratch / "mixed"});
    ADD_FAILURE() << "is no model";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has adapters alone, which only --dtype changes; use echelon convert BASE"));
  }
}

std::string complaint_about(const std::filesystem::path& folder, const ModelSpec& model) {
  try {
    const AdapterReader reader(folder, model);
    for (const NamedShape& parameter : saved_parameters(model, reader.config().lora)) (void)read(reader, parameter);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedModulesInFiles, TwoValuesOfATiedWeightAreRefused) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, true);
  write_folder(scratch / "a", model, saving({"embed_tokens"}));
  EXPECT_EQ(complaint_about(scratch / "a", model), "");
  const std::string config = read_text(scratch / "a" / "adapter_config.json"), tie = "\"ensure_weight_tying\": true";
  for (const char* other : {"\"ensure_weight_tying\": false", "\"ensure_weight_tying\": null"}) {
    std::string changed = config;
    write_text(scratch / "a" / "adapter_config.json", changed.replace(changed.find(tie), tie.size(), other));
    EXPECT_THAT(complaint_about(scratch / "a", model), HasSubstr("makes two weights of the embedding and the head"));
  }
  write_text(scratch / "a" / "adapter_config.json", config);
  const FileTensor head = header_of(scratch / "a").at("base_model.model.lm_head.weight");
  File file = File::open_to_write(scratch / "a" / "adapter_model.safetensors");
  const float value = 5;
  file.write_at(head.first_byte + 4, &value, sizeof value);
  file.close();
  EXPECT_THAT(complaint_about(scratch / "a", model), HasSubstr("differ, but the model ties them"));
}

TEST(SavedModulesInFiles, AnotherListThanTheFilesIsRefused) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(Family::llama, false);
  write_folder(scratch / "a", model, saving({"lm_head"}));
  const std::string config = read_text(scratch / "a" / "adapter_config.json"), list = "[\n    \"lm_head\"\n  ]";
  const auto with = [&](const char* modules) {
    std::string changed = config;
    write_text(scratch / "a" / "adapter_config.json", changed.replace(changed.find(list), list.size(), modules));
    return complaint_about(scratch / "a", model);
  };
  EXPECT_EQ(with("[\"lm_head\"]"), "");
  EXPECT_THAT(with("null"), HasSubstr("'base_model.model.lm_head.weight', which the model has no place for"));
  EXPECT_THAT(with("[\"lm_head\", \"norm\"]"), HasSubstr("has no tensor 'base_model.model.model.layers.0"));
  EXPECT_THAT(with("\"lm_head\""), HasSubstr("modules_to_save = \"lm_head\" is not a list of names (use null)"));
  EXPECT_THAT(with("[3]"), HasSubstr("modules_to_save has 3, which is not a name"));
  EXPECT_THAT(with("[\"score\"]"), HasSubstr("'score' is not a module of llama"));
}

}  // namespace
}  // namespace echelon
