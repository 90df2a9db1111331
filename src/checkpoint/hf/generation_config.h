// generation_config.json of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace echelon {

/// Its eos_token_id, one or several: where transformers ends a text too. None without that file or key. Throws Error
/// naming the file if it is not what its name says.
[[nodiscard]] std::vector<std::int32_t> generation_ends(const std::filesystem::path& folder);

}  // namespace echelon
