// SmolLM3 (Hugging Face 2025): Llama whose every fourth layer has no RoPE (Yang et al. 2025, arXiv:2501.18795).
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_smollm3() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.tie_word_embeddings = true;
  return {
      .model_type = "smollm3",
      .architecture = "SmolLM3ForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(),
                     {FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}},
                      FlagField{"mlp_bias", {&ModelSpec::mlp_bias}}, FixedField{"use_sliding_window", false}}),
      .rope = {.absent_theta = 2e6, .no_rope_interval = 4},
  };
}

}  // namespace echelon
