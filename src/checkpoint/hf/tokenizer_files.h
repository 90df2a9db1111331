// The tokenizer files of a Hugging Face folder.
#pragma once

#include "checkpoint/hf/model_config.h"

#include <filesystem>

namespace echelon {

/// The token that separates documents, "<|endoftext|>", as both bos and eos, if the tokenizer.json has it. Throws Error
/// naming the file if it is not a tokenizer.json.
[[nodiscard]] SpecialTokens special_tokens(const std::filesystem::path& tokenizer);

/// Copies the tokenizer.json into `folder` and writes the tokenizer_config.json that transformers' AutoTokenizer needs.
/// `max_tokens`: the longest sequence of the model. Throws Error if the tokenizer cannot be read, Failure if the files
/// cannot be written.
void write_tokenizer_files(const std::filesystem::path& tokenizer, const std::filesystem::path& folder,
                           std::int64_t max_tokens);

}  // namespace echelon
