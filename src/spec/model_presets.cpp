// Models by name. Published models have the sizes of their config.json on Hugging Face, GPT-3 those of Brown et al.
// 2020, table 2.1.
#include "base/error.h"
#include "base/text/similar.h"
#include "spec/families/family.h"
#include "spec/model_mechanisms.h"
#include "spec/model_spec.h"

#include <span>

namespace echelon {
namespace {

struct Experts {
  std::int64_t num = 0, per_tok = 0, intermediate_size = 0;
  bool normalises = true;
  std::int64_t shared_intermediate_size = 0;
  std::int64_t num_dense_layers = 0;  // the first ones
  double scale = 1.0;
  std::int64_t num_groups = 1, num_chosen_groups = 1;
};

// The columns in which models of one family differ.
struct Preset {
  std::string_view name;
  Family family;
  std::int64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size,
      vocab_size, max_position_embeddings;
  double rope_theta;
  bool tie_word_embeddings;
  std::int64_t sliding_window = 0;
  std::string_view mechanisms = {};  // a list is of the first layers, and repeats
  Experts experts = {};
  double norm_eps = 0;  // 0: the family's
};

/// What all models of a family have in common, but not its config.json without these fields.
struct Common {
  Family family;
  std::string_view mechanisms;
};
constexpr Common common[] = {
    {Family::gpt_neox, "partial_rotary_factor=0.25"},
    {Family::olmo3,
     "layer_types=sliding_attention,sliding_attention,sliding_attention,full_attention sliding_rope_theta=500000 "
     "rope_scaling.rope_type=yarn rope_scaling.factor=8 rope_scaling.original_max_position_embeddings=8192 "
     "rope_scaling.attention_factor=1.2079441541679836"},
    {Family::granite, "embedding_multiplier=12 residual_multiplier=0.22"},
    {Family::gemma2, "layer_types=sliding_attention,full_attention"},
    {Family::gemma3_text,
     "layer_types=sliding_attention,sliding_attention,sliding_attention,sliding_attention,sliding_attention,"
     "full_attention sliding_rope_theta=10000"},
    {Family::deepseek_v2,
     "rope_scaling.rope_type=yarn rope_scaling.factor=40 rope_scaling.original_max_position_embeddings=4096"},
    {Family::deepseek_v3,
     "rope_scaling.rope_type=yarn rope_scaling.factor=40 rope_scaling.original_max_position_embeddings=4096"},
    {Family::ministral3,
     "rope_scaling.rope_type=yarn rope_scaling.factor=16 rope_scaling.original_max_position_embeddings=16384 "
     "rope_scaling.mscale=1 rope_scaling.mscale_all_dim=1 rope_scaling.llama_4_scaling_beta=0.1"},
};

constexpr double unused = 10000.0;  // GPT-2 has no RoPE

// clang-format off
//   name            family             D    layers heads kv head_dim   F      V     positions  theta  tied  window  mechanisms  experts  eps
constexpr Preset presets[] = {
    {"llama-1m",          Family::llama,        128,   4,   4,   2,  32,   384,   2048,    512, 1e4, true},
    {"llama-10m",         Family::llama,        256,   8,   4,   2,  64,  1024,   4096,   1024, 1e4, false},
    {"llama-100m",        Family::llama,        768,  12,  12,   4,  64,  2048,  32000,   2048, 1e4, true},
    {"gpt2-124m",         Family::gpt2,         768,  12,  12,  12,  64,  3072,  50257,   1024, unused, true},
    {"gpt2-355m",         Family::gpt2,        1024,  24,  16,  16,  64,  4096,  50257,   1024, unused, true},
    {"gpt2-774m",         Family::gpt2,        1280,  36,  20,  20,  64,  5120,  50257,   1024, unused, true},
    {"gpt2-1.5b",         Family::gpt2,        1600,  48,  25,  25,  64,  6400,  50257,   1024, unused, true},
    {"gpt3-175b",         Family::gpt2,       12288,  96,  96,  96, 128, 49152,  50257,   2048, unused, true},
    {"tinyllama-1.1b",    Family::llama,       2048,  22,  32,   4,  64,  5632,  32000,   2048, 1e4, false},
    {"llama2-7b",         Family::llama,       4096,  32,  32,  32, 128, 11008,  32000,   4096, 1e4, false},
    {"llama2-13b",        Family::llama,       5120,  40,  40,  40, 128, 13824,  32000,   4096, 1e4, false},
    {"llama2-70b",        Family::llama,       8192,  80,  64,   8, 128, 28672,  32000,   4096, 1e4, false},
    {"llama3-8b",         Family::llama,       4096,  32,  32,   8, 128, 14336, 128256,   8192, 5e5, false},
    {"llama3-70b",        Family::llama,       8192,  80,  64,   8, 128, 28672, 128256,   8192, 5e5, false},
    {"llama3-405b",       Family::llama,      16384, 126, 128,   8, 128, 53248, 128256, 131072, 5e5, false, 0, "rope_scaling.factor=8"},
    {"llama3.1-8b",       Family::llama,       4096,  32,  32,   8, 128, 14336, 128256, 131072, 5e5, false, 0, "rope_scaling.factor=8"},
    {"llama3.1-70b",      Family::llama,       8192,  80,  64,   8, 128, 28672, 128256, 131072, 5e5, false, 0, "rope_scaling.factor=8"},
    {"llama3.2-1b",       Family::llama,       2048,  16,  32,   8,  64,  8192, 128256, 131072, 5e5, true, 0, "rope_scaling.factor=32"},
    {"llama3.2-3b",       Family::llama,       3072,  28,  24,   8, 128,  8192, 128256, 131072, 5e5, true, 0, "rope_scaling.factor=32"},
    {"llama3.3-70b",      Family::llama,       8192,  80,  64,   8, 128, 28672, 128256, 131072, 5e5, false, 0, "rope_scaling.factor=8"},
    {"smollm2-135m",      Family::llama,        576,  30,   9,   3,  64,  1536,  49152,   8192, 1e5, true},
    {"smollm2-360m",      Family::llama,        960,  32,  15,   5,  64,  2560,  49152,   8192, 1e5, true},
    {"smollm2-1.7b",      Family::llama,       2048,  24,  32,  32,  64,  8192,  49152,   8192, 1.3e5, true},
    {"smollm3-3b",        Family::smollm3,     2048,  36,  16,   4, 128, 11008, 128256,  65536, 5e6, true, 0, "no_rope_layers=1,1,1,0"},
    {"mistral-7b-v0.1",   Family::mistral,     4096,  32,  32,   8, 128, 14336,  32000,  32768, 1e4, false, 4096},
    {"mistral-7b-v0.3",   Family::mistral,     4096,  32,  32,   8, 128, 14336,  32768,  32768, 1e6, false},
    {"mistral-nemo-12b",  Family::mistral,     5120,  40,  32,   8, 128, 14336, 131072, 131072, 1e6, false},
    {"mistral-small-24b", Family::mistral,     5120,  40,  32,   8, 128, 32768, 131072,  32768, 1e8, false},
    {"mixtral-30m",       Family::mixtral,      256,   8,   4,   2,  64,   512,   4096,   1024, 1e6, false, 0, "", {8, 2, 512}},
    {"mixtral-8x7b",      Family::mixtral,     4096,  32,  32,   8, 128, 14336,  32000,  32768, 1e6, false, 0, "", {8, 2, 14336}},
    {"mixtral-8x22b",     Family::mixtral,     6144,  56,  48,   8, 128, 16384,  32000,  65536, 1e6, false, 0, "", {8, 2, 16384}},
    {"qwen2-0.5b",        Family::qwen2,        896,  24,  14,   2,  64,  4864, 151936, 131072, 1e6, true},
    {"qwen2-1.5b",        Family::qwen2,       1536,  28,  12,   2, 128,  8960, 151936, 131072, 1e6, true},
    {"qwen2-7b",          Family::qwen2,       3584,  28,  28,   4, 128, 18944, 152064, 131072, 1e6, false},
    {"qwen2-72b",         Family::qwen2,       8192,  80,  64,   8, 128, 29568, 152064, 131072, 1e6, false},
    {"qwen2.5-0.5b",      Family::qwen2,        896,  24,  14,   2,  64,  4864, 151936,  32768, 1e6, true},
    {"qwen2.5-1.5b",      Family::qwen2,       1536,  28,  12,   2, 128,  8960, 151936, 131072, 1e6, true},
    {"qwen2.5-3b",        Family::qwen2,       2048,  36,  16,   2, 128, 11008, 151936,  32768, 1e6, true},
    {"qwen2.5-7b",        Family::qwen2,       3584,  28,  28,   4, 128, 18944, 152064, 131072, 1e6, false},
    {"qwen2.5-14b",       Family::qwen2,       5120,  48,  40,   8, 128, 13824, 152064, 131072, 1e6, false},
    {"qwen2.5-32b",       Family::qwen2,       5120,  64,  40,   8, 128, 27648, 152064, 131072, 1e6, false},
    {"qwen2.5-72b",       Family::qwen2,       8192,  80,  64,   8, 128, 29568, 152064, 131072, 1e6, false},
    {"qwen3-0.6b",        Family::qwen3,       1024,  28,  16,   8, 128,  3072, 151936,  40960, 1e6, true},
    {"qwen3-1.7b",        Family::qwen3,       2048,  28,  16,   8, 128,  6144, 151936,  40960, 1e6, true},
    {"qwen3-4b",          Family::qwen3,       2560,  36,  32,   8, 128,  9728, 151936,  40960, 1e6, true},
    {"qwen3-8b",          Family::qwen3,       4096,  36,  32,   8, 128, 12288, 151936,  40960, 1e6, false},
    {"qwen3-14b",         Family::qwen3,       5120,  40,  40,   8, 128, 17408, 151936,  40960, 1e6, false},
    {"qwen3-32b",         Family::qwen3,       5120,  64,  64,   8, 128, 25600, 151936,  40960, 1e6, false},
    {"qwen3-30b-a3b",     Family::qwen3_moe,   2048,  48,  32,   4, 128,  6144, 151936,  40960, 1e6, false, 0, "", {128, 8, 768}},
    {"qwen3-235b-a22b",   Family::qwen3_moe,   4096,  94,  64,   4, 128, 12288, 151936,  40960, 1e6, false, 0, "", {128, 8, 1536}},
    {"qwen1.5-moe-a2.7b", Family::qwen2_moe,   2048,  24,  16,  16, 128,  5632, 151936,   8192, 1e6, false, 0, "", {60, 4, 1408, false, 5632}},
    {"olmoe-1b-7b",       Family::olmoe,       2048,  16,  16,  16, 128,  1024,  50304,   4096, 1e4, false, 0, "", {64, 8, 1024, false}},
    {"phi3-mini-4k",      Family::phi3,        3072,  32,  32,  32,  96,  8192,  32064,   4096, 1e4, false, 2047},
    {"phi3-medium-4k",    Family::phi3,        5120,  40,  40,  10, 128, 17920,  32064,   4096, 1e4, false, 2047},
    {"phi4-14b",          Family::phi3,        5120,  40,  40,  10, 128, 17920, 100352,  16384, 2.5e5, false},
    {"starcoder2-3b",     Family::starcoder2,  3072,  30,  24,   2, 128, 12288,  49152,  16384, 999999.4420358813, true, 4096},
    {"starcoder2-7b",     Family::starcoder2,  4608,  32,  36,   4, 128, 18432,  49152,  16384, 1e6, true, 4096},
    {"starcoder2-15b",    Family::starcoder2,  6144,  40,  48,   4, 128, 24576,  49152,  16384, 1e5, false, 4096},
    {"gpt-neox-20b",      Family::gpt_neox,    6144,  44,  64,  64,  96, 24576,  50432,   2048, 1e4, false},
    {"pythia-70m",        Family::gpt_neox,     512,   6,   8,   8,  64,  2048,  50304,   2048, 1e4, false},
    {"pythia-160m",       Family::gpt_neox,     768,  12,  12,  12,  64,  3072,  50304,   2048, 1e4, false},
    {"pythia-410m",       Family::gpt_neox,    1024,  24,  16,  16,  64,  4096,  50304,   2048, 1e4, false},
    {"pythia-1b",         Family::gpt_neox,    2048,  16,   8,   8, 256,  8192,  50304,   2048, 1e4, false},
    {"pythia-1.4b",       Family::gpt_neox,    2048,  24,  16,  16, 128,  8192,  50304,   2048, 1e4, false},
    {"pythia-2.8b",       Family::gpt_neox,    2560,  32,  32,  32,  80, 10240,  50304,   2048, 1e4, false},
    {"pythia-6.9b",       Family::gpt_neox,    4096,  32,  32,  32, 128, 16384,  50432,   2048, 1e4, false},
    {"pythia-12b",        Family::gpt_neox,    5120,  36,  40,  40, 128, 20480,  50688,   2048, 1e4, false},
    {"olmo2-1b",          Family::olmo2,       2048,  16,  16,  16, 128,  8192, 100352,   4096, 5e5, false, 0, "", {}, 1e-6},
    {"olmo2-7b",          Family::olmo2,       4096,  32,  32,  32, 128, 11008, 100352,   4096, 5e5, false, 0, "", {}, 1e-6},
    {"olmo2-13b",         Family::olmo2,       5120,  40,  40,  40, 128, 13824, 100352,   4096, 5e5, false, 0, "", {}, 1e-6},
    {"olmo2-32b",         Family::olmo2,       5120,  64,  40,   8, 128, 27648, 100352,   4096, 5e5, false, 0, "", {}, 1e-6},
    {"olmo3-7b",          Family::olmo3,       4096,  32,  32,  32, 128, 11008, 100278,  65536, 5e5, false, 4096, "", {}, 1e-6},
    {"olmo3-32b",         Family::olmo3,       5120,  64,  40,   8, 128, 27648, 100278,  65536, 5e5, false, 4096, "", {}, 1e-6},
    {"granite3-2b",       Family::granite,     2048,  40,  32,   8,  64,  8192,  49155,   4096, 1e4, true, 0, "attention_multiplier=0.015625 logits_scaling=8", {}, 1e-5},
    {"granite3-8b",       Family::granite,     4096,  40,  32,   8, 128, 12800,  49155,   4096, 1e4, true, 0, "attention_multiplier=0.0078125 logits_scaling=16", {}, 1e-5},
    {"gemma2-2b",         Family::gemma2,      2304,  26,   8,   4, 256,  9216, 256000,   8192, 1e4, true, 4096},
    {"gemma2-9b",         Family::gemma2,      3584,  42,  16,   8, 256, 14336, 256000,   8192, 1e4, true, 4096},
    {"gemma2-27b",        Family::gemma2,      4608,  46,  32,  16, 128, 36864, 256000,   8192, 1e4, true, 4096, "query_pre_attn_scalar=144"},
    {"gemma3-270m",       Family::gemma3_text,  640,  18,   4,   1, 256,  2048, 262144,  32768, 1e6, true, 512},
    {"gemma3-1b",         Family::gemma3_text, 1152,  26,   4,   1, 256,  6912, 262144,  32768, 1e6, true, 512},
    {"gemma3-4b",         Family::gemma3_text, 2560,  34,   8,   4, 256, 10240, 262208, 131072, 1e6, true, 1024, "rope_scaling.rope_type=linear rope_scaling.factor=8"},
    {"gemma3-12b",        Family::gemma3_text, 3840,  48,  16,   8, 256, 15360, 262208, 131072, 1e6, true, 1024, "rope_scaling.rope_type=linear rope_scaling.factor=8"},
    {"gemma3-27b",        Family::gemma3_text, 5376,  62,  32,  16, 128, 21504, 262208, 131072, 1e6, true, 1024, "rope_scaling.rope_type=linear rope_scaling.factor=8 query_pre_attn_scalar=168"},
    {"ministral3-3b",     Family::ministral3,  3072,  26,  32,   8, 128,  9216, 131072, 262144, 1e6, true},
    {"ministral3-8b",     Family::ministral3,  4096,  34,  32,   8, 128, 14336, 131072, 262144, 1e6, false},
    {"deepseek-v2-lite",  Family::deepseek_v2, 2048,  27,  16,  16, 192, 10944, 102400, 163840, 1e4, false, 0, "kv_lora_rank=512 qk_rope_head_dim=64 v_head_dim=128 rope_scaling.mscale=0.707 rope_scaling.mscale_all_dim=0.707", {64, 6, 1408, false, 2816, 1}},
    {"deepseek-v3",       Family::deepseek_v3, 7168,  61, 128, 128, 192, 18432, 129280, 163840, 1e4, false, 0, "kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 rope_scaling.mscale=1 rope_scaling.mscale_all_dim=1", {256, 8, 2048, true, 2048, 3, 2.5, 8, 4}},
    {"deepseek-v3-28m",   Family::deepseek_v3,  256,   8,   4,   4,  96,   768,   4096,   1024, 1e4, false, 0, "kv_lora_rank=64 q_lora_rank=96 qk_rope_head_dim=32 v_head_dim=64 rope_scaling.mscale=1 rope_scaling.mscale_all_dim=1", {16, 4, 256, true, 256, 1, 2.5, 4, 2}},
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
    spec.sliding_window = p.sliding_window;
    if (p.norm_eps > 0) spec.norm_eps = p.norm_eps;
    for (const Common& each : common)
      if (each.family == p.family) set_mechanisms("preset", each.mechanisms, spec);
    set_mechanisms("preset", p.mechanisms, spec);
    spec.set_num_layers(p.num_hidden_layers);
    set_embedding_multiplier(spec);
    if (p.experts.num == 0) return spec;
    spec.mixture.num_experts = p.experts.num;
    spec.mixture.num_experts_per_tok = p.experts.per_tok;
    spec.mixture.moe_intermediate_size = p.experts.intermediate_size;
    spec.mixture.norm_topk_prob = p.experts.normalises;
    spec.mixture.shared_expert_intermediate_size = p.experts.shared_intermediate_size;
    spec.mixture.first_k_dense_replace = p.experts.num_dense_layers;
    spec.mixture.routed_scaling_factor = p.experts.scale;
    spec.mixture.n_group = p.experts.num_groups;
    spec.mixture.topk_group = p.experts.num_chosen_groups;
    return spec;
  }
  const std::string meant = similar(name, preset_names());
  throw Error(fmt::format("model.preset = '{}' is not a preset{}; there are {}", name,
                          meant.empty() ? "" : fmt::format("; did you mean {}?", meant),
                          fmt::join(preset_names(), ", ")));
}

}  // namespace echelon
