// Phi-3 (arXiv:2404.14219): Llama with q, k and v in one tensor, and gate and up in another.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_phi3() {
  return {
      .model_type = "phi3",
      .architecture = "Phi3ForCausalLM",
      .fixed = {},
      .fields =
          with(fields_of_llama(), {NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-5}, DropoutField{"embd_pdrop"},
                                   DropoutField{"resid_pdrop"}, FixedField{"attention_bias", false}}),
      .windows = WindowFields::everywhere,
      .rope = {.partial = "partial_rotary_factor", .has_type_alone = true},
      .weights = {.of_layer = {{"self_attn.q_proj", "self_attn.qkv_proj", Slot::query},
                               {"self_attn.k_proj", "self_attn.qkv_proj", Slot::key},
                               {"self_attn.v_proj", "self_attn.qkv_proj", Slot::value},
                               {"mlp.gate_proj", "mlp.gate_up_proj", Slot::gate},
                               {"mlp.up_proj", "mlp.gate_up_proj", Slot::up}}},
  };
}

}  // namespace echelon
