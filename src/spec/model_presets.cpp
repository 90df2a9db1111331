// Models by name. Published models have the sizes of their config.json on Hugging Face, GPT-3 those of Brown et al.
// 2020, table 2.1.
#include "base/error.h"
#include "base/similar.h"
#include "spec/model_spec.h"

#include <span>

namespace echelon {
namespace {

// The columns in which models of one family differ.
struct Preset {
  std::string_view name;
  Family family;
  std::int64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size,
      vocab_size, max_position_embeddings;
  double rope_theta;
  bool tie_word_embeddings;
  std::optional<RopeScaling> rope_scaling = {};
  std::int64_t num_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
};

constexpr double unused = 10000.0;  // GPT-2 has no RoPE

// clang-format off
//   name          family           D    layers heads kv head_dim   F      V     positions  theta    tied
constexpr Preset presets[] = {
    {"llama-1m",    Family::llama,   128,   4,   4,   2,  32,    384,   2048,    512,   1e4,    true},
    {"llama-10m",   Family::llama,   256,   8,   4,   2,  64,   1024,   4096,   1024,   1e4,    false},
    {"llama-100m",  Family::llama,   768,  12,  12,   4,  64,   2048,  32000,   2048,   1e4,    true},
    {"gpt2-124m",   Family::gpt2,    768,  12,  12,  12,  64,   3072,  50257,   1024,   unused, true},
    {"gpt2-355m",   Family::gpt2,   1024,  24,  16,  16,  64,   4096,  50257,   1024,   unused, true},
    {"gpt2-774m",   Family::gpt2,   1280,  36,  20,  20,  64,   5120,  50257,   1024,   unused, true},
    {"gpt2-1.5b",   Family::gpt2,   1600,  48,  25,  25,  64,   6400,  50257,   1024,   unused, true},
    {"gpt3-175b",   Family::gpt2,  12288,  96,  96,  96, 128,  49152,  50257,   2048,   unused, true},
    {"llama2-7b",   Family::llama,  4096,  32,  32,  32, 128,  11008,  32000,   4096,   1e4,    false},
    {"llama2-13b",  Family::llama,  5120,  40,  40,  40, 128,  13824,  32000,   4096,   1e4,    false},
    {"llama2-70b",  Family::llama,  8192,  80,  64,   8, 128,  28672,  32000,   4096,   1e4,    false},
    {"llama3-8b",   Family::llama,  4096,  32,  32,   8, 128,  14336, 128256,   8192,   5e5,    false},
    {"llama3-70b",  Family::llama,  8192,  80,  64,   8, 128,  28672, 128256,   8192,   5e5,    false},
    {"llama3-405b", Family::llama, 16384, 126, 128,   8, 128,  53248, 128256, 131072,   5e5,    false, RopeScaling{8.0, 1.0, 4.0, 8192}},
    {"qwen2-0.5b",  Family::qwen2,   896,  24,  14,   2,  64,   4864, 151936, 131072,   1e6,    true},
    {"qwen2.5-7b",  Family::qwen2,  3584,  28,  28,   4, 128,  18944, 152064, 131072,   1e6,    false},
    {"qwen3-0.6b",  Family::qwen3,  1024,  28,  16,   8, 128,   3072, 151936,  40960,   1e6,    true},
    {"qwen3-8b",    Family::qwen3,  4096,  36,  32,   8, 128,  12288, 151936,  40960,   1e6,    false},
    {"mixtral-30m",     Family::mixtral,   256,  8,  4, 2,  64,   512,   4096,  1024, 1e6, false, {},   8, 2,   512},
    {"mixtral-8x7b",    Family::mixtral,  4096, 32, 32, 8, 128, 14336,  32000, 32768, 1e6, false, {},   8, 2, 14336},
    {"mixtral-8x22b",   Family::mixtral,  6144, 56, 48, 8, 128, 16384,  32000, 65536, 1e6, false, {},   8, 2, 16384},
    {"qwen3-30b-a3b",   Family::qwen3_moe, 2048, 48, 32, 4, 128,  6144, 151936, 40960, 1e6, false, {}, 128, 8,   768},
    {"qwen3-235b-a22b", Family::qwen3_moe, 4096, 94, 64, 4, 128, 12288, 151936, 40960, 1e6, false, {}, 128, 8,  1536},
};
// clang-format on

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& p : presets) names.push_back(p.name);
  return names;
}

ModelSpec preset(std::string_view name) {
  for (const Preset& p : presets) {
    if (p.name != name) continue;
    ModelSpec spec = family_defaults(p.family);
    spec.hidden_size = p.hidden_size;
    spec.num_hidden_layers = p.num_hidden_layers;
    spec.num_attention_heads = p.num_attention_heads;
    spec.num_key_value_heads = p.num_key_value_heads;
    spec.head_dim = p.head_dim;
    spec.intermediate_size = p.intermediate_size;
    spec.vocab_size = p.vocab_size;
    spec.max_position_embeddings = p.max_position_embeddings;
    spec.rope_theta = p.rope_theta;
    spec.tie_word_embeddings = p.tie_word_embeddings;
    spec.rope_scaling = p.rope_scaling;
    if (p.num_experts == 0) return spec;
    spec.mixture.num_experts = p.num_experts;
    spec.mixture.num_experts_per_tok = p.num_experts_per_tok;
    spec.mixture.moe_intermediate_size = p.moe_intermediate_size;
    spec.mixture.norm_topk_prob = true;
    return spec;
  }
  const std::string meant = similar(name, preset_names());
  throw Error(fmt::format("model.preset = '{}' is not a preset{}; there are {}", name,
                          meant.empty() ? "" : fmt::format("; did you mean {}?", meant),
                          fmt::join(preset_names(), ", ")));
}

}  // namespace echelon
