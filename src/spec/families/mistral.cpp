// Mistral 7B (Jiang et al. 2023, arXiv:2310.06825), Nemo and Small: Llama with a window in every layer, or in none.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_mistral() {
  return {
      .model_type = "mistral",
      .architecture = "MistralForCausalLM",
      .fields = with(fields_of_llama(), {FixedField{"attention_bias", false}, FixedField{"mlp_bias", false}}),
      .windows = WindowFields::everywhere,
  };
}

}  // namespace echelon
