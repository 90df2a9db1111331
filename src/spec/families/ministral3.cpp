// Ministral 3 (Mistral AI 2025): Mistral with YaRN, whose queries grow with their positions.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_ministral3() {
  FamilyDescription ministral = describe_mistral();
  ministral.model_type = "ministral3";
  ministral.architecture = "Ministral3ForCausalLM";
  ministral.fields =
      with(ministral.fields,
           {NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-5},
            IntegerField{"num_hidden_layers", &ModelSpec::num_hidden_layers, max_layers, always<34>},
            IntegerField{"head_dim", &ModelSpec::head_dim, max_heads, always<128>},
            IntegerField{"vocab_size", &ModelSpec::vocab_size, max_rows, always<131072>},
            IntegerField{"max_position_embeddings", &ModelSpec::max_position_embeddings, max_rows, always<262144>}});
  ministral.absent_window = 0;
  ministral.rope = {.absent_theta = 1e6,
                    .absent_scaling = RopeScaling{.rope_type = RopeType::yarn,
                                                  .factor = 16,
                                                  .original_max_position_embeddings = 16384,
                                                  .mscale = 1,
                                                  .mscale_all_dim = 1,
                                                  .llama_4_scaling_beta = 0.1},
                    .grows_queries = true};
  return ministral;
}

}  // namespace echelon
