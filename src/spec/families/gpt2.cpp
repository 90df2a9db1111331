// GPT-2 (Radford et al. 2019). Its linear layers are stored as [in, out], with q, k and v in one tensor.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_gpt2() {
  ModelSpec fixed;
  fixed.tie_word_embeddings = true;
  fixed.norm = NormKind::layer_norm;
  fixed.position = PositionKind::learned;
  fixed.mlp = MlpKind::gelu;
  fixed.qkv_bias = true;
  fixed.o_bias = true;
  fixed.mlp_bias = true;
  return {
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .fixed = fixed,
      .fields =
          {
              IntegerField{"n_embd", &ModelSpec::hidden_size, max_width},
              IntegerField{"n_layer", &ModelSpec::num_hidden_layers, max_layers},
              IntegerField{"n_head", &ModelSpec::num_attention_heads, max_heads},
              IntegerField{"n_inner", &ModelSpec::intermediate_size, max_width,
                           [](const ModelSpec& m) { return 4 * m.hidden_size; }},
              IntegerField{"vocab_size", &ModelSpec::vocab_size, max_rows},
              IntegerField{"n_positions", &ModelSpec::max_position_embeddings, max_rows},
              NumberField{"layer_norm_epsilon", &ModelSpec::norm_eps, 1e-5},
              NumberField{"initializer_range", &ModelSpec::initializer_range, 0.02},
              FlagField{"tie_word_embeddings", {&ModelSpec::tie_word_embeddings}},
              ActivationField{"activation_function"},
              FixedField{"scale_attn_weights", true},
              FixedField{"scale_attn_by_inverse_layer_idx", false},
              FixedField{"add_cross_attention", false},
              DropoutField{"attn_pdrop"},
              DropoutField{"embd_pdrop"},
              DropoutField{"resid_pdrop"},
          },
      .weights = {.layers = "transformer.h.",
                  .base = "transformer.",
                  .of_layer = {{"input_layernorm", "ln_1"},
                               {"self_attn.q_proj", "attn.c_attn", Slot::query, true},
                               {"self_attn.k_proj", "attn.c_attn", Slot::key, true},
                               {"self_attn.v_proj", "attn.c_attn", Slot::value, true},
                               {"self_attn.o_proj", "attn.c_proj", Slot::whole, true},
                               {"post_attention_layernorm", "ln_2"},
                               {"mlp.up_proj", "mlp.c_fc", Slot::whole, true},
                               {"mlp.down_proj", "mlp.c_proj", Slot::whole, true}},
                  .of_model = {{"model.embed_tokens", "transformer.wte"},
                               {"model.embed_positions", "transformer.wpe"},
                               {"model.norm", "transformer.ln_f"}}},
  };
}

}  // namespace echelon
