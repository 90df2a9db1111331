// A byte-level BPE tokenizer as plain values, stored as Hugging Face's tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Adjacent tokens `left` and `right` become `result`, whose bytes are theirs concatenated.
struct Merge {
  std::int32_t left, right, result;
  bool operator==(const Merge&) const = default;
};

/// A token that is matched in the text before any other. It need not be in the vocabulary of the merges.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool is_special;
  bool operator==(const AddedToken&) const = default;
};

/// Normalization of the text before it is split.
enum class Normalization : std::uint8_t { none, nfc };

struct TokenizerSpec {
  std::vector<std::string> tokens;  // bytes by id; empty if the vocabulary of the merges lacks the id
  std::vector<Merge> merges;        // the earliest has priority
  std::vector<AddedToken> added;    // by id
  Normalization normalization = Normalization::none;
  std::vector<std::string> patterns;  // patterns of the Splitter
  // A piece that is a token is encoded as that token, regardless of the merges (ignore_merges in the file).
  bool prefers_whole_pieces = false;
  bool operator==(const TokenizerSpec&) const = default;
};

/// The document separator that trained tokenizers get.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// Reads a tokenizer.json: model BPE at byte level, split by ByteLevel or by a Sequence of Split and ByteLevel,
/// unchanged or in form NFC. `name` is for messages. Throws Error naming the invalid or unsupported field of the file.
[[nodiscard]] TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& name);

/// The same tokenizer for Hugging Face's library. Fields without a counterpart in TokenizerSpec (templates, truncation)
/// are null.
[[nodiscard]] std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace echelon
