// Hugging Face's config.json to ModelSpec and back, for GPT-2, Llama, Qwen2 and Qwen3.
#pragma once

#include "spec/model_spec.h"
#include "tensor/dtype.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace echelon {

/// The model of FOLDER/config.json. Unsupported features (windows that alternate, other kinds of RoPE or activations,
/// unusual biases, quantised weights) are refused by name. Dropout is ignored: Echelon has none. Throws Error naming
/// the file, the key and the value.
[[nodiscard]] ModelSpec read_config_json(const std::filesystem::path& folder);

/// Ids of the tokenizer's special tokens, if known.
struct SpecialTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
};

/// Throws Error with the key and the closest valid value if config.json cannot express the model: its family fixes
/// norms and biases, and GPT-2 has no grouped queries.
void require_sayable(const ModelSpec& model);

/// How a model was trained. In config.json transformers ignores it; 0 is not written there.
struct TrainingNote {
  std::int64_t seq_len = 0;  // tokens per sequence
  std::int64_t steps = 0;
};

/// Writes FOLDER/config.json so that transformers loads the model. `dtype` is that of the weights. Throws Error if it
/// cannot express the model, Failure if the file cannot be written.
void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, DType dtype,
                        const SpecialTokens& tokens = {}, const TrainingNote& note = {});

/// What FOLDER/config.json says of it. Without a length: all positions of the model, at most 8,192. Throws the errors
/// of read_config_json.
[[nodiscard]] TrainingNote read_training_note(const std::filesystem::path& folder);

}  // namespace echelon
