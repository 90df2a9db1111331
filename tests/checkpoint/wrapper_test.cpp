// Models of images and text: their language model is read, and comes back inside everything else or alone.
#include "base/error.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/raw_tensors.h"
#include "checkpoint/scratch_folder.h"
#include "files/file.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>

namespace echelon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::filesystem::path wrapper_fixtures = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures";

json config_of_folder(const std::filesystem::path& folder) { return json::parse(read_text(folder / "config.json")); }

bool is_of_images(const std::string& name) {
  return name.find("vision") != std::string::npos || name.find("projector") != std::string::npos;
}

/// A copy of the fixture with another config.json.
std::filesystem::path folder_with(const ScratchFolder& scratch, const std::string& fixture, const json& config) {
  const std::filesystem::path folder = scratch / "changed";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(wrapper_fixtures / fixture / "model.safetensors", folder / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  put(folder / "config.json", config.dump());
  return folder;
}

class Wrapper : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder_ = wrapper_fixtures / GetParam();
  ScratchFolder scratch_;
};

TEST_P(Wrapper, ComesBackWhole) {
  convert_model(folder_, scratch_ / "out", {});
  EXPECT_EQ(tensors_in(scratch_ / "out"), tensors_in(folder_));
  EXPECT_EQ(read_model_spec(scratch_ / "out"), read_model_spec(folder_));
  const json before = config_of_folder(folder_), after = config_of_folder(scratch_ / "out");
  for (const auto& [key, value] : before.items())
    if (key != "text_config") {
      EXPECT_EQ(after.at(key), value) << key;
    }
  for (const auto& [key, value] : before.at("text_config").items())
    if (!key.starts_with("rope_")) {
      EXPECT_EQ(after.at("text_config").at(key), value) << key;
    }
}

TEST_P(Wrapper, KeepsTheBytesOfImagesWhereTheModelGetsAnotherDtype) {
  convert_model(folder_, scratch_ / "out", {.dtype = DType::bfloat16});
  const auto before = tensors_in(folder_), after = tensors_in(scratch_ / "out");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, raw] : after) {
    EXPECT_EQ(raw.format, is_of_images(name) ? "F32" : "BF16") << name;
    EXPECT_EQ(raw == before.at(name), is_of_images(name)) << name;
  }
}

TEST_P(Wrapper, LetsItsLanguageModelGoAlone) {
  convert_model(folder_, scratch_ / "out", {.text_only = true});
  const json inner = config_of_folder(folder_).at("text_config"), written = config_of_folder(scratch_ / "out");
  EXPECT_EQ(written.at("model_type"), inner.at("model_type"));
  EXPECT_FALSE(written.contains("vision_config") || written.contains("text_config"));
  EXPECT_EQ(read_model_spec(scratch_ / "out"), read_model_spec(folder_));
  const auto before = tensors_in(folder_);
  std::multiset<std::string> expected, actual;
  for (const auto& [name, raw] : before)
    if (!is_of_images(name)) expected.insert(raw.bytes);
  for (const auto& [name, raw] : tensors_in(scratch_ / "out")) {
    actual.insert(raw.bytes);
    EXPECT_TRUE(name.starts_with("model.layers.") || name.starts_with("model.embed_tokens.") ||
                name.starts_with("model.norm.") || name == "lm_head.weight")
        << name;
  }
  EXPECT_EQ(actual, expected);
  EXPECT_THROW(convert_model(scratch_ / "out", scratch_ / "again", {.text_only = true}), Error);
}

TEST_P(Wrapper, IsInspected) {
  const FolderVerdict verdict = verdict_of(folder_);
  EXPECT_EQ(verdict.missing, std::vector<std::string>());
  ASSERT_EQ(verdict.notes.size(), 1U);
  EXPECT_THAT(verdict.notes[0], HasSubstr("stay as they are"));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Wrapper, ::testing::Values("gemma3", "mistral3"),
                         [](const auto& tested) { return tested.param; });

TEST(WrapperConfig, TakesDefaultsOfTheLanguageModelsClass) {
  const ScratchFolder scratch;
  // As google/gemma-3-4b-it and mistralai/Mistral-Small-3.1-24B-Instruct-2503 have it.
  put(scratch / "config.json", R"({"model_type": "gemma3", "vision_config": {}, "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  const ModelSpec gemma = read_model_spec(scratch.path());
  EXPECT_EQ(gemma.num_parameters(), 3'880'263'168);
  EXPECT_EQ(gemma.sliding_window, 1024);
  put(scratch / "config.json", R"({"model_type": "mistral3", "text_config": {"sliding_window": null}})");
  const ModelSpec mistral = read_model_spec(scratch.path());
  EXPECT_EQ(mistral.family, Family::mistral);
  EXPECT_EQ(mistral.num_parameters(), 7'241'732'096);  // Mistral 7B, the class's default
  put(scratch / "config.json", R"({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}})");
  const ModelSpec ministral = read_model_spec(scratch.path());
  EXPECT_EQ(ministral.num_hidden_layers, 34);
  EXPECT_EQ(ministral.rope_scaling->llama_4_scaling_beta, 0.1);
}

TEST(WrapperConfig, RefusesOtherLanguageModelsAndQuantizedWeights) {
  const ScratchFolder scratch;
  json config = config_of_folder(wrapper_fixtures / "mistral3");
  config["text_config"]["model_type"] = "llama";
  const auto fault = [&] {
    const std::vector<std::string> missing = verdict_of(folder_with(scratch, "mistral3", config)).missing;
    return missing.empty() ? std::string() : missing.front();
  };
  EXPECT_THAT(fault(), HasSubstr("text_config.model_type = \"llama\" is not supported"));
  config["text_config"]["model_type"] = "ministral3";
  EXPECT_EQ(fault(), "");
  config["quantization_config"] = {{"quant_method", "fp8"}};
  EXPECT_THAT(fault(), HasSubstr("quantization_config.quant_method = \"fp8\""));
  config.erase("quantization_config");
  config["text_config"]["attention_chunk_size"] = 8;
  EXPECT_THAT(fault(), HasSubstr("text_config.attention_chunk_size = 8"));
}

// transformers 5 reads the wrapper's tie_word_embeddings, whose default is true, but ties no head that it finds.
TEST(WrapperConfig, BelievesTheHeadOfTheFiles) {
  const ScratchFolder scratch;
  json config = config_of_folder(wrapper_fixtures / "mistral3");
  config["tie_word_embeddings"] = true;
  const std::filesystem::path folder = folder_with(scratch, "mistral3", config);
  EXPECT_FALSE(read_model_spec(folder).tie_word_embeddings);
  EXPECT_EQ(ModelReader(folder).spec(), read_model_spec(folder));
}

}  // namespace
}  // namespace echelon
