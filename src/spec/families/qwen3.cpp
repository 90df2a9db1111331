// Qwen3 (arXiv:2505.09388): q and k are normalized per head, and heads have a width of their own.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_qwen3() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.qk_norm = true;
  return {
      .model_type = "qwen3",
      .architecture = "Qwen3ForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {IntegerField{"head_dim", &ModelSpec::head_dim, max_heads, always<128>},
                                         FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}},
                                         FixedField{"mlp_bias", false}}),
      .windows = WindowFields::from_a_layer,
      .absent_window = 4096,
  };
}

}  // namespace echelon
