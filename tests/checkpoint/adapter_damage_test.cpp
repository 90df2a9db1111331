// Bad adapters get one sentence with the file, the field and its value.
#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace echelon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ModelSpec adapted_model() { return tiny_model(Family::llama, true); }

std::string with(const std::string& fields) {
  return R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"])" + fields + "}";
}

/// A safetensors file of zeros for the adapters of `of`.
std::string weights_of(const ModelSpec& of, const LoraConfig& lora) {
  std::string header, data;
  for (const NamedShape& tensor : adapter_tensors(of, lora)) {
    const std::size_t start = data.size();
    data.resize(start + static_cast<std::size_t>(tensor.sizes.num_elements()) * 4);
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{},{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "" : ",", tensor.name, tensor.sizes[0], tensor.sizes[1], start, data.size());
  }
  return header_bytes_of("{" + header + "}") + data;
}

std::string weights_of(const ModelSpec& of, std::int64_t rank) {
  LoraConfig lora;
  lora.rank = rank;
  lora.target_modules = {"q_proj"};
  return weights_of(of, lora);
}

std::string complaint_about(const std::string& config, const std::string& weights) {
  const ScratchFolder scratch;
  put(scratch / "adapter_config.json", config);
  put(scratch / "adapter_model.safetensors", weights);
  try {
    const AdapterReader reader(scratch / "", adapted_model());
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith((scratch / "adapter_").string()));
    EXPECT_LT(std::string_view(error.what()).size(), 600U);
    return error.what();
  }
  return "";
}

std::string complaint_about(const std::string& fields) {
  return complaint_about(with(fields), weights_of(adapted_model(), 2));
}

TEST(DamagedAdapter, AFieldThatIsWrongIsNamed) {
  EXPECT_EQ(complaint_about(""), "");
  EXPECT_THAT(complaint_about(R"(, "r": 0)"), HasSubstr("r = 0 is not a rank"));
  EXPECT_THAT(complaint_about(R"(, "use_rslora": "yes")"), HasSubstr("use_rslora = \"yes\" is not true or false"));
  EXPECT_THAT(complaint_about(R"(, "use_rslora": 1)"), HasSubstr("use_rslora = 1 is not true or false"));
  EXPECT_EQ(complaint_about(R"(, "use_rslora": null)"), "");
  EXPECT_THAT(complaint_about(R"(, "target_modules": 5)"),
              HasSubstr("target_modules = 5 is neither a name nor a list"));
  EXPECT_THAT(complaint_about(R"(, "target_modules": ["qq_proj"])"), HasSubstr("'qq_proj' is not a linear layer"));
  EXPECT_THAT(complaint_about(R"(, "echelon_base_digest": "zz")"),
              HasSubstr("echelon_base_digest = \"zz\" is not a digest"));
  EXPECT_THAT(complaint_about(R"(, "echelon_steps": 9223372036854775808)"), HasSubstr("is not a number of steps"));
  EXPECT_THAT(complaint_about(R"(, "echelon_steps": -1)"), HasSubstr("echelon_steps = -1"));
  EXPECT_THAT(complaint_about(R"(, "use_dora": true)"), HasSubstr("use_dora = true is not supported"));
}

// A field of a later PEFT may change what adapters compute.
TEST(DamagedAdapter, AFieldThatIsNotKnownHasToBeNothing) {
  EXPECT_THAT(complaint_about(R"(, "use_later_method": true)"), HasSubstr("use_later_method = true is not supported"));
  EXPECT_THAT(complaint_about(R"(, "velora_config": {"num_groups": 2})"), HasSubstr("velora_config = {"));
  EXPECT_THAT(complaint_about(R"(, "megatron_config": {"a": 1})"), HasSubstr("megatron_config = {"));
  for (const char* nothing : {"null", "false", "[]", "{}", "\"\""})
    EXPECT_EQ(complaint_about(fmt::format(R"(, "use_later_method": {})", nothing)), "") << nothing;
}

TEST(DamagedAdapter, WhatChangesNoResultMayBeAnything) {
  EXPECT_EQ(complaint_about(R"(, "revision": "main", "task_type": "CAUSAL_LM", "lora_dropout": 0.1)"), "");
  EXPECT_EQ(complaint_about(R"(, "fan_in_fan_out": true, "qalora_group_size": 16, "eva_config": {"rho": 2.0})"), "");
  EXPECT_THAT(complaint_about(R"(, "fan_in_fan_out": "yes")"), HasSubstr("fan_in_fan_out = \"yes\" is not true or"));
}

TEST(DamagedAdapter, AFileThatIsNoJsonIsNamed) {
  const std::string weights = weights_of(adapted_model(), 2);
  EXPECT_THAT(complaint_about(std::string(100'000, '['), weights),
              HasSubstr("adapter_config.json: its JSON is nested"));
  EXPECT_THAT(
      complaint_about("{\n \"r\"\n", weights),
      HasSubstr("adapter_config.json: not valid JSON at line 3, column 1: unexpected end of input; expected ':'"));
  EXPECT_THAT(complaint_about("[]", weights), HasSubstr("adapter_config.json is not a JSON object"));
}

TEST(DamagedAdapter, WeightsOfAnotherModelOrRankAreNamed) {
  EXPECT_THAT(complaint_about(with(""), weights_of(adapted_model(), 3)), HasSubstr("for another model or rank"));
  EXPECT_THAT(complaint_about(with(""), weights_of(tiny_model(Family::qwen3, true), 2)),
              HasSubstr("another model or rank"));
  ModelSpec deeper = adapted_model();
  deeper.num_hidden_layers = 3;
  EXPECT_THAT(complaint_about(with(""), weights_of(deeper, 2)), HasSubstr("which the model has no place for"));
  deeper.num_hidden_layers = 1;
  EXPECT_THAT(complaint_about(with(""), weights_of(deeper, 2)), HasSubstr("for another model"));
}

TEST(DamagedAdapter, EndsInAnErrorWhereverItIsCut) {
  const std::string whole = weights_of(adapted_model(), 2);
  for (std::size_t size = 0; size < whole.size(); size += size < 16 ? 1 : 37)
    EXPECT_NE(complaint_about(with(""), whole.substr(0, size)), "") << size;
  for (const char* size : {"\xff\xff\xff\xff\xff\xff\xff\x7f", "\0\0\0\0\0\0\xf8\x7f"})
    EXPECT_NE(complaint_about(with(""), std::string(size, 8) + whole.substr(8)), "");
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::string config = with(R"(, "use_rslora": true, "bias": "none", "echelon_steps": 7)");
    std::string weights = whole;
    for (int edit = 0; edit < 1 + trial % 3; ++edit) {
      std::string& file = trial % 2 == 0 ? config : weights;
      file[random() % std::min<std::size_t>(file.size(), 400)] = static_cast<char>(random());
    }
    (void)complaint_about(config, weights);  // no crash, and what is thrown is an Error
  }
}

}  // namespace
}  // namespace echelon
