// OLMo 2 (arXiv:2501.00656): norms after the branches, and q and k normalized over all heads together.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_olmo2() {
  ModelSpec fixed;
  fixed.qk_norm = true;
  fixed.qk_norm_of_projection = true;
  fixed.norm_placement = NormPlacement::after;
  return {
      .model_type = "olmo2",
      .architecture = "Olmo2ForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-5},
                                         FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}}}),
      .rope = {.has_type_alone = true},
  };
}

}  // namespace echelon
