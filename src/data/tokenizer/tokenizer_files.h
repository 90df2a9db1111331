// The files in which tokenizers are published.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace echelon {

/// Reads a tokenizer.json; a vocab.json with the merges.txt next to it; a model of SentencePiece (*.model); or
/// tiktoken's ranks (*.tiktoken, or a *.model with such lines). `pattern` splits text for ranks: a name of
/// named_pattern, or empty if the name of the file says it. Throws Error with the file and what is wrong in it, and for
/// the pattern of a file without ranks.
[[nodiscard]] TokenizerSpec read_tokenizer(const std::string& path, const std::string& pattern = "");

/// The first of FOLDER/tokenizer.json, tokenizer.model and vocab.json that exists, else the first name. Throws Error if
/// it is a link that leads out of the folder.
[[nodiscard]] std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder);

/// The content of a token by its key, such as eos_token, in the tokenizer_config.json or special_tokens_map.json next
/// to the file. Throws Error if one of them is not a JSON object.
[[nodiscard]] std::optional<std::string> named_token(const std::string& path, const char* key);

/// vocab_size in the config.json next to the file, if there is one that has it. Throws Error if it is not a JSON
/// object.
[[nodiscard]] std::optional<std::int64_t> model_vocab_size(const std::string& path);

/// A model of SentencePiece, in its protobuf.
[[nodiscard]] TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& name);

/// tiktoken's lines of a token in base64 and its rank.
[[nodiscard]] TokenizerSpec parse_ranks(std::string_view text, const std::string& pattern, const std::string& name);

/// vocab.json and merges.txt of GPT-2's kind.
[[nodiscard]] TokenizerSpec parse_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                                   const std::string& name);

/// The published pattern of a name such as "cl100k"; throws Error if there is none, with the names.
[[nodiscard]] std::string_view named_pattern(const std::string& name);

}  // namespace echelon
