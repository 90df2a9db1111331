// The files of a Hugging Face folder that belong to a model and that Echelon does not compute with: the tokenizer, its
// chat template, the defaults of generation. A folder that is trained or converted keeps them byte for byte.
#pragma once

#include <filesystem>
#include <string_view>

namespace echelon {

/// A folder among them, of chat templates alone.
inline constexpr std::string_view more_templates = "additional_chat_templates";

/// Whether a file, or that folder, of that name is one of them.
[[nodiscard]] bool is_companion(std::string_view file_name);

/// Copies those of `source` into `folder`; `text_only`: without those of images. Throws Error if a file cannot be read,
/// Failure if one cannot be written.
void copy_companions(const std::filesystem::path& source, const std::filesystem::path& folder, bool text_only = false);

/// Copies the tokenizer.json `tokenizer` into `folder`, with the files next to it that name its tokens and the chat
/// template. If none names tokens, writes a tokenizer_config.json that transformers' AutoTokenizer reads, for sequences
/// of at most `max_tokens`; `has_separator`: its documents end with "<|endoftext|>". Throws as copy_companions.
void write_tokenizer_files(const std::filesystem::path& tokenizer, const std::filesystem::path& folder,
                           std::int64_t max_tokens, bool has_separator);

}  // namespace echelon
