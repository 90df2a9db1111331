// A small run to make blueprints of.
#pragma once

#include "spec/config/run_config.h"

namespace echelon::testing {

inline RunConfig small_config() {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 4;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 4;
  config.model.head_dim = 8;
  config.model.intermediate_size = 64;
  config.model.vocab_size = 128;
  config.model.max_position_embeddings = 64;
  config.training.seq_len = 16;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 16;
  return config;
}

}  // namespace echelon::testing
