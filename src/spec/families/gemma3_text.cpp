// Gemma 3's language model (arXiv:2503.19786): Gemma 2 with norms of q and k in place of the caps, and five layers with
// a window and a RoPE of their own to one without. Its config.json may omit any field.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_gemma3_text() {
  FamilyDescription gemma3 = describe_gemma2();
  gemma3.model_type = "gemma3_text";
  gemma3.architecture = "Gemma3ForCausalLM";
  gemma3.fixed.qk_norm = true;
  gemma3.fixed.attn_logit_softcapping = 0;
  gemma3.fixed.final_logit_softcapping = 0;
  gemma3.absent_window_pattern = 6;
  gemma3.fields =
      // transformers has an attn_logit_softcapping here that it never applies: other values than null are refused.
      with(without(gemma3.fields, "attn_logit_softcapping"),
           {IntegerField{"hidden_size", &ModelSpec::hidden_size, max_width, always<2304>},
            IntegerField{"num_hidden_layers", &ModelSpec::num_hidden_layers, max_layers, always<26>},
            IntegerField{"num_attention_heads", &ModelSpec::num_attention_heads, max_heads, always<8>},
            IntegerField{"num_key_value_heads", &ModelSpec::num_key_value_heads, max_heads, always<4>},
            IntegerField{"intermediate_size", &ModelSpec::intermediate_size, max_width, always<9216>},
            IntegerField{"vocab_size", &ModelSpec::vocab_size, max_rows, always<262208>},
            IntegerField{"max_position_embeddings", &ModelSpec::max_position_embeddings, max_rows, always<131072>},
            CapField{"final_logit_softcapping", &ModelSpec::final_logit_softcapping, 0.0}});
  gemma3.rope = {.absent_theta = 1e6, .differs_with_windows = true, .theta_of_windows = "rope_local_base_freq"};
  return gemma3;
}

}  // namespace echelon
