// Fields of adapter_config.json that Echelon does not compute with.
#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_config.h"
#include "files/file.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class AdapterFields : public ::testing::Test {
 protected:
  /// What is written of a folder with these fields in addition.
  json written(const std::string& fields) {
    put_config(fields);
    AdapterConfig config = read_adapter_config(source_, model_);
    config.source = source_;
    return written(config);
  }
  json written(const AdapterConfig& config) {
    std::filesystem::create_directories(scratch_ / "out");
    write_adapter_config(scratch_ / "out", config, model_);
    return json::parse(read_text(scratch_ / "out" / "adapter_config.json"));
  }
  void put_config(const std::string& fields) {
    std::filesystem::create_directories(source_);
    write_text(source_ / "adapter_config.json",
               R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"])" + fields + "}");
  }
  std::string complaint_about(const std::string& fields) {
    try {
      (void)written(fields);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ModelSpec model_ = tiny_model(Family::llama, true);
  ScratchFolder scratch_;
  std::filesystem::path source_ = scratch_ / "source";
};

TEST_F(AdapterFields, ThatChangeNoResultComeBack) {
  const json kept = json::parse(R"({
    "task_type": null, "revision": "v2", "inference_mode": false, "lora_dropout": 0.05, "init_lora_weights": "gaussian",
    "peft_version": "0.21.0", "auto_mapping": {"base_model_class": "LlamaForCausalLM"}, "megatron_core": "megatron.core",
    "qalora_group_size": 16, "ensure_weight_tying": false, "exclude_modules": ["lm_head"], "layers_pattern": null,
    "rank_pattern": {}, "use_dora": false, "field_of_a_later_peft": null, "runtime_config": {"offload": false, "a": []}})");
  const std::string text = kept.dump();
  const json is = written(", " + text.substr(1, text.size() - 2));
  for (const auto& [field, value] : kept.items()) EXPECT_EQ(is.at(field), value) << field;
  EXPECT_EQ(is.at("r"), 2);
}

TEST_F(AdapterFields, OfEchelonsOwnAreWrittenFromWhatWasTrained) {
  put_config(R"(, "bias": "none", "use_rslora": null, "fan_in_fan_out": true, "echelon_steps": 7)");
  AdapterConfig config = read_adapter_config(source_, model_);
  config.source = source_;
  config.steps = 9;
  config.lora.alpha = 5;
  const json is = written(config);
  EXPECT_EQ(is.at("echelon_steps"), 9);
  EXPECT_EQ(is.at("lora_alpha"), 5);
  EXPECT_EQ(is.at("use_rslora"), false);
  EXPECT_EQ(is.at("fan_in_fan_out"), false);
  EXPECT_EQ(is.at("target_modules"), json({"q_proj"}));
}

TEST_F(AdapterFields, AreLeftOutWhereTheFolderCannotBeReadAnyLonger) {
  put_config(R"(, "revision": "v2")");
  AdapterConfig config = read_adapter_config(source_, model_);
  config.source = source_;
  EXPECT_TRUE(written(config).contains("revision"));
  for (const char* damaged : {"{", "[]", R"({"peft_type": "IA3"})"}) {
    write_text(source_ / "adapter_config.json", damaged);
    EXPECT_FALSE(written(config).contains("revision")) << damaged;
  }
  std::filesystem::remove_all(source_);
  EXPECT_FALSE(written(config).contains("revision"));
  EXPECT_EQ(written(config).at("task_type"), "CAUSAL_LM");
}

TEST_F(AdapterFields, ThatChangeTheComputationAreRefused) {
  EXPECT_THAT(complaint_about(R"(, "runtime_config": {"offload": true})"), HasSubstr("runtime_config = {"));
  EXPECT_THAT(complaint_about(R"(, "rank_pattern": {"q_proj": 4})"), HasSubstr("rank_pattern = {"));
  EXPECT_THAT(complaint_about(R"(, "layers_to_transform": [0])"), HasSubstr("layers_to_transform = [0]"));
  for (const char* excluded : {R"(["q_proj"])", R"(["model.layers.0.mlp.up_proj"])", R"(["lm_head", "mlp.up_proj"])",
                               R"("lm_head")", "[3]", "true"})
    EXPECT_THAT(complaint_about(fmt::format(R"(, "exclude_modules": {})", excluded)), HasSubstr("exclude_modules = "))
        << excluded;
  for (const char* excluded : {"null", "[]", R"(["lm_head", "model.norm", "mlp"])"})
    EXPECT_EQ(complaint_about(fmt::format(R"(, "exclude_modules": {})", excluded)), "") << excluded;
}

}  // namespace
}  // namespace echelon
