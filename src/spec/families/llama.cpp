// Llama (Touvron et al. 2023, arXiv:2302.13971) to Llama 3.3, and the many models with its config.json.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_llama() {
  return {
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .fields = with(fields_of_llama(), {FixedField{"attention_bias", false}, FixedField{"mlp_bias", false}}),
  };
}

}  // namespace echelon
