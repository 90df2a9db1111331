// The ids of a tokenizer's special tokens.
#pragma once

#include "checkpoint/hf/config/model_config.h"

#include <filesystem>
#include <string_view>

namespace echelon {

/// The token that separates documents in tokenizers that Echelon trains.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// The ids of bos_token and eos_token of the tokenizer_config.json next to a tokenizer.json. Without that file: of
/// "<|endoftext|>" as both, if the tokenizer has it. Throws Error naming the file if it is not what its name says.
[[nodiscard]] SpecialTokens special_tokens(const std::filesystem::path& tokenizer);

}  // namespace echelon
