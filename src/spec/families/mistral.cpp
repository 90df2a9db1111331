// Mistral 7B (Jiang et al. 2023, arXiv:2310.06825), Nemo and Small: Llama with a window in every layer, or in none. Its
// config.json may omit any field, as those around a language model do.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_mistral() {
  return {
      .model_type = "mistral",
      .architecture = "MistralForCausalLM",
      .fields =
          with(fields_of_llama(),
               {IntegerField{"hidden_size", &ModelSpec::hidden_size, max_width, always<4096>},
                IntegerField{"num_hidden_layers", &ModelSpec::num_hidden_layers, max_layers, always<32>},
                IntegerField{"num_attention_heads", &ModelSpec::num_attention_heads, max_heads, always<32>},
                IntegerField{"num_key_value_heads", &ModelSpec::num_key_value_heads, max_heads, always<8>},
                IntegerField{"intermediate_size", &ModelSpec::intermediate_size, max_width, always<14336>},
                IntegerField{"vocab_size", &ModelSpec::vocab_size, max_rows, always<32000>},
                IntegerField{"max_position_embeddings", &ModelSpec::max_position_embeddings, max_rows, always<131072>},
                FixedField{"attention_bias", false}, FixedField{"mlp_bias", false}}),
      .windows = WindowFields::everywhere,
      .absent_window = 4096,
  };
}

}  // namespace echelon
