#include "spec/model_spec.h"

#include "base/error.h"
#include "spec/config/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The counts that the models' publishers and `transformers` state; GPT-3: 12 L D^2 (1 + 13 / (12 D)) + (V + T) D + 2 D.
TEST(Presets, HaveThePublishedNumbersOfParameters) {
  const std::map<std::string_view, std::int64_t> published = {
      {"gpt2-124m", 124'439'808},           {"gpt2-355m", 354'823'168},         {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200},         {"llama2-7b", 6'738'415'616},       {"llama2-13b", 13'015'864'320},
      {"llama2-70b", 68'976'648'192},       {"llama3-8b", 8'030'261'248},       {"llama3-70b", 70'553'706'496},
      {"llama3-405b", 405'853'388'800},     {"qwen2-0.5b", 494'032'768},        {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-0.6b", 596'049'920},          {"qwen3-8b", 8'190'735'360},        {"gpt3-175b", 174'604'259'328},
      {"mixtral-8x7b", 46'702'792'704},     {"mixtral-8x22b", 140'620'634'112}, {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560}, {"pythia-70m", 70'426'624},         {"pythia-160m", 162'322'944},
      {"pythia-410m", 405'334'016},         {"pythia-1b", 1'011'781'632},       {"pythia-1.4b", 1'414'647'808},
      {"pythia-2.8b", 2'775'208'960},       {"pythia-6.9b", 6'857'302'016},     {"pythia-12b", 11'846'072'320},
      {"gpt-neox-20b", 20'554'567'680},     {"gemma2-2b", 2'614'341'888},       {"gemma2-9b", 9'241'705'984},
      {"gemma2-27b", 27'227'128'320},       {"gemma3-270m", 268'098'176},       {"gemma3-1b", 999'885'952},
      {"olmo2-13b", 13'716'198'400},        {"granite3-8b", 8'170'848'256},     {"phi3-mini-4k", 3'821'079'552},
      {"smollm2-135m", 134'515'008},        {"olmoe-1b-7b", 6'919'161'856},     {"qwen1.5-moe-a2.7b", 14'315'784'192}};
  for (const auto& [name, count] : published) EXPECT_EQ(preset(name).num_parameters(), count) << name;
}

// tests/interop/count_parameters.py counts those of transformers' models.
TEST(Presets, HaveAsManyParametersAsInTransformers) {
  std::ifstream file(ECHELON_SOURCE_DIR "/tests/spec/parameter_counts.txt");
  std::vector<std::string> counted;
  std::string name;
  for (std::int64_t count = 0; file >> name >> count;) {
    EXPECT_EQ(preset(name).num_parameters(), count) << name;
    counted.push_back(name);
  }
  EXPECT_THAT(counted, testing::UnorderedElementsAreArray(preset_names()));
  EXPECT_GE(counted.size(), 40U);
}

// As published: 12.9 B of Mixtral 8x7B (Jiang et al. 2024) and 39 B of 8x22B, 3.3 B and 22 B of Qwen3, 1.3 B of
// OLMoE, 2.7 B of Qwen1.5.
TEST(Presets, HaveThePublishedNumbersOfActiveParameters) {
  const auto billions = [](std::string_view name) {
    return static_cast<double>(preset(name).num_active_parameters()) / 1e9;
  };
  // DeepSeek-AI's formula counts the bias of the choice of 58 layers, which is no parameter.
  EXPECT_EQ(preset("deepseek-v3").num_active_parameters(), 37'552'297'472 - 58 * 256);
  EXPECT_EQ(preset("deepseek-v2-lite").num_active_parameters(), 2'661'150'208);
  EXPECT_NEAR(billions("mixtral-8x7b"), 12.9, 0.05);
  EXPECT_NEAR(billions("mixtral-8x22b"), 39.1, 0.15);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 3.3, 0.06);
  EXPECT_NEAR(billions("qwen3-235b-a22b"), 22.1, 0.2);
  EXPECT_NEAR(billions("olmoe-1b-7b"), 1.3, 0.05);
  EXPECT_NEAR(billions("qwen1.5-moe-a2.7b"), 2.7, 0.03);
  EXPECT_EQ(preset("llama3-8b").num_active_parameters(), preset("llama3-8b").num_parameters());
}

TEST(Mixture, IsInTheLayersThatItsFieldsSay) {
  MixtureSpec mixture = {.num_experts = 4, .moe_intermediate_size = 8};
  EXPECT_EQ(mixture.num_layers_of(6), 6);
  mixture.decoder_sparse_step = 2;
  mixture.mlp_only_layers = {3};
  for (const std::int64_t layer : {1, 5, 7}) EXPECT_TRUE(mixture.is_in(layer)) << layer;
  for (const std::int64_t layer : {0, 2, 3, 4, 6}) EXPECT_FALSE(mixture.is_in(layer)) << layer;
  EXPECT_EQ(mixture.end_of_kind_from(2, 8), 5);
  EXPECT_EQ(mixture.end_of_kind_from(5, 8), 6);
  mixture.first_k_dense_replace = 6;
  EXPECT_EQ(mixture.num_layers_of(8), 1);
}

TEST(Mixture, RefusesSizesThatContradictEachOther) {
  const auto refusal = [](const auto& change) {
    ModelSpec model = preset("qwen3-30b-a3b");
    change(model.mixture);
    return [model] { validate(model); };
  };
  const auto refusal_of_groups = [](std::int64_t n_group) {
    ModelSpec model = preset("deepseek-v3-28m");
    model.mixture.n_group = n_group;
    model.mixture.topk_group = 1;
    return [model] { validate(model); };
  };
  EXPECT_THAT(refusal([](MixtureSpec& m) { m.num_experts_per_tok = 129; }),
              ThrowsMessage<Error>(HasSubstr("model.num_experts_per_tok = 129 is not between 1 and model.num_experts = "
                                             "128 (use 128)")));
  EXPECT_THAT(refusal_of_groups(3),
              ThrowsMessage<Error>(HasSubstr("model.n_group = 3 does not divide model.num_experts = 16")));
  EXPECT_THAT(refusal_of_groups(8), ThrowsMessage<Error>(HasSubstr("model.topk_group = 1 is not between 2")));
  EXPECT_THAT(refusal([](MixtureSpec& m) { m.moe_intermediate_size = 0; }),
              ThrowsMessage<Error>(HasSubstr("model.moe_intermediate_size = 0")));
  EXPECT_THAT(refusal([](MixtureSpec& m) { m.num_experts = 0; }), ThrowsMessage<Error>(HasSubstr("have experts")));
  EXPECT_THAT(refusal([](MixtureSpec& m) { m.num_experts = -8; }),
              ThrowsMessage<Error>(HasSubstr("model.num_experts = -8: ")));
  EXPECT_THAT(refusal([](MixtureSpec& m) {
                m.mlp_only_layers = {1, 48};
              }),
              ThrowsMessage<Error>(HasSubstr("model.mlp_only_layers = [1, 48] names layer 48, which is not between 0 "
                                             "and 47 (use 47)")));
  EXPECT_THAT(refusal([](MixtureSpec& m) { m.mlp_only_layers = {-1}; }),
              ThrowsMessage<Error>(HasSubstr("model.mlp_only_layers = [-1] names layer -1")));
  ModelSpec dense = preset("llama-1m");
  dense.mixture.num_experts = -8;
  EXPECT_THAT([&] { validate(dense); }, ThrowsMessage<Error>(HasSubstr("model.num_experts = -8 is not supported")));
  dense.mixture.num_experts = 8;
  EXPECT_THAT([&] { validate(dense); }, ThrowsMessage<Error>(HasSubstr("model.num_experts = 8 is not supported")));
}

TEST(Mixture, RefusesWhatTheFilesOfItsFamilyCannotSay) {
  const auto refusal = [](std::string_view name, const auto& change) {
    ModelSpec model = preset(name);
    change(model.mixture);
    try {
      validate(model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto groups = [](MixtureSpec& m) { m.n_group = 2; };
  const auto chosen_groups = [](MixtureSpec& m) { m.topk_group = 2; };
  const auto first_dense = [](MixtureSpec& m) { m.first_k_dense_replace = 3; };
  const auto every_second = [](MixtureSpec& m) { m.decoder_sparse_step = 2; };
  const auto two_dense = [](MixtureSpec& m) { m.mlp_only_layers = {0, 2}; };
  const auto expected = [](std::string_view setting, std::string_view family, std::string_view fix) {
    return fmt::format("model.{} is not supported: config.json of model_type = '{}' has no key for it (use {})",
                       setting, family, fix);
  };
  EXPECT_EQ(refusal("mixtral-8x7b", groups), expected("n_group = 2", "mixtral", "1"));
  EXPECT_EQ(refusal("qwen3-30b-a3b", groups), expected("n_group = 2", "qwen3_moe", "1"));
  EXPECT_EQ(refusal("olmoe-1b-7b", chosen_groups), expected("topk_group = 2", "olmoe", "1"));
  EXPECT_EQ(refusal("mixtral-8x7b", first_dense), expected("first_k_dense_replace = 3", "mixtral", "0"));
  EXPECT_EQ(refusal("mixtral-8x7b", every_second), expected("decoder_sparse_step = 2", "mixtral", "1"));
  EXPECT_EQ(refusal("deepseek-v3", every_second), expected("decoder_sparse_step = 2", "deepseek_v3", "1"));
  EXPECT_EQ(refusal("olmoe-1b-7b", two_dense), expected("mlp_only_layers = [0, 2]", "olmoe", "[]"));
  EXPECT_EQ(refusal("deepseek-v3", first_dense), "accepted");
  EXPECT_EQ(refusal("deepseek-v3", [](MixtureSpec& m) { m.n_group = 4; }), "accepted");
  EXPECT_EQ(refusal("qwen3-30b-a3b", every_second), "accepted");
  EXPECT_EQ(refusal("qwen3-30b-a3b", two_dense), "accepted");
}

TEST(Presets, SmallOnesAreAsLargeAsTheirNamesSay) {
  EXPECT_NEAR(static_cast<double>(preset("llama-1m").num_parameters()), 1e6, 1e5);
  EXPECT_NEAR(static_cast<double>(preset("llama-10m").num_parameters()), 1e7, 1e6);
  EXPECT_NEAR(static_cast<double>(preset("llama-100m").num_parameters()), 1e8, 1e7);
}

TEST(Presets, AreAllValid) {
  for (const auto name : preset_names()) EXPECT_NO_THROW(validate(preset(name))) << name;
  EXPECT_THAT([] { (void)preset("gpt2-123m"); }, ThrowsMessage<Error>(HasSubstr("did you mean gpt2-124m?")));
}

TEST(Presets, AreListedWhereOneIsMissing) {
  for (const auto name : preset_names())
    EXPECT_THAT([] { (void)preset("mistral"); }, ThrowsMessage<Error>(HasSubstr(std::string(name))));
}

TEST(Presets, ThatTheHelpNamesExist) {
  const std::string help(find_config_key("model.preset")->doc);
  const auto names = preset_names();
  EXPECT_GE(std::ranges::count_if(names, [&](const auto name) { return help.find(name) != std::string::npos; }), 4);
  for (const char* const name : {"llama-10m", "gpt2-124m", "llama3.1-8b", "qwen3-8b"}) {
    EXPECT_THAT(help, HasSubstr(name));
    EXPECT_NO_THROW((void)preset(name));
  }
}

TEST(Family, NamesAreThoseOfConfigJson) {
  for (const Family family :
       {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3, Family::mistral, Family::mixtral, Family::qwen3_moe,
        Family::dots1, Family::olmoe, Family::qwen2_moe, Family::deepseek_v2, Family::deepseek_v3}) {
    EXPECT_EQ(parse_family(name_of(family)), family);
    EXPECT_EQ(family_defaults(family).family, family);
  }
  EXPECT_THAT([] { (void)parse_family("lama"); }, ThrowsMessage<Error>(HasSubstr("did you mean llama?")));
}

// Of three layers the first sees all 16 keys, the others 5 each.
TEST(Windows, LimitTheKeysThatFlopsAreCountedFor) {
  ModelSpec spec = preset("qwen2-0.5b");
  spec.num_hidden_layers = 3;
  const double without = model_flops_per_token(spec, 16);
  spec.sliding_window = 5;
  spec.max_window_layers = 1;
  EXPECT_EQ(spec.windows(), (std::vector<std::int64_t>{0, 5}));
  const double fewer_keys = 2 * (16 - 5);
  EXPECT_EQ(without - model_flops_per_token(spec, 16), 12.0 * 14 * 64 * fewer_keys);
}

struct ModelFault {
  const char* sentence;
  void (*make)(ModelSpec&);
};

class ModelFaults : public testing::TestWithParam<ModelFault> {};

TEST_P(ModelFaults, AreRefusedByName) {
  ModelSpec spec = preset("llama-1m");
  GetParam().make(spec);
  EXPECT_THAT([&] { validate(spec); }, ThrowsMessage<Error>(HasSubstr(GetParam().sentence)));
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelFaults,
    testing::Values(
        ModelFault{"model.hidden_size = 0", [](ModelSpec& m) { m.hidden_size = 0; }},
        ModelFault{"model.vocab_size = -5", [](ModelSpec& m) { m.vocab_size = -5; }},
        ModelFault{"model.vocab_size = 4611686018427387904 is too large",
                   [](ModelSpec& m) { m.vocab_size = 1LL << 62; }},
        ModelFault{"model.num_key_value_heads = 3 does not divide model.num_attention_heads = 4 (use 2)",
                   [](ModelSpec& m) { m.num_key_value_heads = 3; }},
        ModelFault{"model.head_dim = 65538 is too large; at most 65536", [](ModelSpec& m) { m.head_dim = 65538; }},
        ModelFault{"model.head_dim = 33 is odd", [](ModelSpec& m) { m.head_dim = 33; }},
        ModelFault{"model.rope_theta = 0", [](ModelSpec& m) { m.rope_theta = 0; }},
        ModelFault{"model.rms_norm_eps = 0", [](ModelSpec& m) { m.norm_eps = 0; }},
        ModelFault{"model.initializer_range = -1", [](ModelSpec& m) { m.initializer_range = -1; }},
        ModelFault{"model.sliding_window = 7 is not supported: config.json of model_type = 'llama'",
                   [](ModelSpec& m) { m.sliding_window = 7; }},
        ModelFault{"model.sliding_window = -1 is below 0", [](ModelSpec& m) { m.sliding_window = -1; }},
        ModelFault{"model.max_window_layers = 2 is not supported: config.json of model_type = 'mistral'",
                   [](ModelSpec& m) { m.family = Family::mistral, m.sliding_window = 7, m.max_window_layers = 2; }},
        ModelFault{"model.shared_expert_intermediate_size = 1000 is not a multiple of "
                   "model.moe_intermediate_size = 300",
                   [](ModelSpec& m) {
                     m.family = Family::dots1, m.mixture.num_experts = 8;
                     m.mixture.num_experts_per_tok = 2, m.mixture.moe_intermediate_size = 300;
                     m.mixture.shared_expert_intermediate_size = 1000;
                   }},
        ModelFault{"model.mechanisms has kv_lora_rank = 8 in a model of family llama (use 0)",
                   [](ModelSpec& m) { m.kv_lora_rank = 8; }},
        ModelFault{"model.mechanisms has v_head_dim = 200, which is not from 1 to model.head_dim = 192",
                   [](ModelSpec& m) { m = preset("deepseek-v3"), m.v_head_dim = 200; }},
        ModelFault{"model.mechanisms has qk_rope_head_dim = 63, which is no even number below",
                   [](ModelSpec& m) { m = preset("deepseek-v3"), m.qk_rope_head_dim = 63; }},
        ModelFault{"model.rope_scaling.factor = 0.5",
                   [](ModelSpec& m) { m.rope_scaling = RopeScaling{.factor = 0.5}; }}));

}  // namespace
}  // namespace echelon
