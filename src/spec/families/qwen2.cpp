// Qwen2 (arXiv:2407.10671) and Qwen2.5: q, k and v always have biases.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_qwen2() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.qkv_bias = true;
  return {
      .model_type = "qwen2",
      .architecture = "Qwen2ForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {FixedField{"mlp_bias", false}}),
      .windows = WindowFields::from_a_layer,
  };
}

}  // namespace echelon
