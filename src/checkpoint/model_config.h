// Hugging Face's config.json to ModelSpec and back, for GPT-2, Llama, Qwen2 and Qwen3.
#pragma once

#include "spec/model_spec.h"
#include "tensor/dtype.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace echelon {

/// The model of FOLDER/config.json. Unsupported features (sliding windows, other kinds of RoPE or activations, unusual
/// biases, quantised weights) are refused by name. Dropout is ignored: Echelon has none. Throws Error naming the file,
/// the key and the value.
[[nodiscard]] ModelSpec read_model_spec(const std::filesystem::path& folder);

/// Ids of the tokenizer's special tokens, if known.
struct SpecialTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
};

/// Throws Error with the key and the closest valid value if config.json cannot express the model: its family fixes
/// norms and biases, and GPT-2 has no grouped queries.
void require_sayable(const ModelSpec& model);

/// Writes FOLDER/config.json so that transformers loads the model. `dtype` is that of the weights; `training_seq_len`
/// the tokens per sequence that it was trained with, which transformers ignores (0: not written). Throws Error if it
/// cannot express the model, Failure if the file cannot be written.
void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, DType dtype,
                        const SpecialTokens& tokens = {}, std::int64_t training_seq_len = 0);

/// The tokens per sequence that the model of FOLDER was trained with: as in its config.json, else all its positions, at
/// most 8,192. Throws the errors of read_model_spec.
[[nodiscard]] std::int64_t read_training_seq_len(const std::filesystem::path& folder);

}  // namespace echelon
