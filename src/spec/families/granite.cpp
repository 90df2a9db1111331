// Granite 3 (IBM 2024): Llama with multipliers of the embedding, the branches, the scores and the logits.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_granite() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.attention_multiplier = 1;
  return {
      .model_type = "granite",
      .architecture = "GraniteForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}},
                                         FlagField{"mlp_bias", {&ModelSpec::mlp_bias}},
                                         NumberField{"embedding_multiplier", &ModelSpec::embedding_multiplier, 1.0},
                                         NumberField{"residual_multiplier", &ModelSpec::residual_multiplier, 1.0},
                                         NumberField{"attention_multiplier", &ModelSpec::attention_multiplier, 1.0,
                                                     NumberKind::above_zero},
                                         NumberField{"logits_scaling", &ModelSpec::logits_scaling, 1.0}}),
  };
}

}  // namespace echelon
