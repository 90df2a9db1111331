// StarCoder2 (arXiv:2402.19173): LayerNorm, RoPE, biases everywhere and an MLP without a gate.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_starcoder2() {
  ModelSpec fixed;
  fixed.tie_word_embeddings = true;
  fixed.norm = NormKind::layer_norm;
  fixed.mlp = MlpKind::gelu;
  fixed.qkv_bias = true;
  fixed.o_bias = true;
  fixed.mlp_bias = true;
  return {
      .model_type = "starcoder2",
      .architecture = "Starcoder2ForCausalLM",
      .fixed = fixed,
      .fields = with(without(fields_of_llama(), "rms_norm_eps"),
                     {NumberField{"norm_epsilon", &ModelSpec::norm_eps, 1e-5},
                      NumberField{"initializer_range", &ModelSpec::initializer_range, 0.018042},
                      FlagField{"use_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias, &ModelSpec::mlp_bias}},
                      DropoutField{"embedding_dropout"}, DropoutField{"residual_dropout"}}),
      .windows = WindowFields::everywhere,
      .weights = {.of_layer = {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}}},
  };
}

}  // namespace echelon
