// The special tokens of a model's folder, which its tokenizer's files name.
#pragma once

#include "checkpoint/hf/config/model_config.h"

#include <filesystem>

namespace echelon {

/// The ids of bos_token and eos_token by the files next to the tokenizer.json, or of <|endoftext|> as both if they name
/// none. Throws Error if it is no tokenizer.json that Echelon reads.
[[nodiscard]] SpecialTokens special_tokens(const std::filesystem::path& tokenizer);

}  // namespace echelon
