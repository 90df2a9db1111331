// Llama (Touvron et al. 2023, arXiv:2302.13971) to Llama 3.3, and the many models with its config.json.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_llama() {
  return {
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .fields = with(fields_of_llama(), {FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}},
                                         FlagField{"mlp_bias", {&ModelSpec::mlp_bias}}}),
  };
}

}  // namespace echelon
