// What a byte-level BPE tokenizer is, as plain values, and Hugging Face's tokenizer.json as the file for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Tokens `left` and `right` side by side become `result`; their bytes joined are its bytes.
struct Merge {
  std::int32_t left, right, result;
  bool operator==(const Merge&) const = default;
};

/// A token that is looked for in the text before any other; it need not be in the vocabulary of the merges.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool is_special;
  bool operator==(const AddedToken&) const = default;
};

/// What happens to the text before it is split.
enum class Normalization : std::uint8_t { none, nfc };

struct TokenizerSpec {
  std::vector<std::string> tokens;  // bytes by id; empty where the vocabulary of the merges has no such id
  std::vector<Merge> merges;        // the earliest goes first
  std::vector<AddedToken> added;    // by id
  Normalization normalization = Normalization::none;
  std::vector<std::string> patterns;  // of the Splitter
  // A piece that is a token is that token, whatever the merges say (ignore_merges in the file).
  bool prefers_whole_pieces = false;
  bool operator==(const TokenizerSpec&) const = default;
};

/// The document separator that trained tokenizers get.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// Reads a tokenizer.json: model BPE at byte level, split by ByteLevel or by a Sequence of Split and ByteLevel, as it
/// is or in form NFC. `name` is for messages. Throws Error, with what is wrong or not supported by its name in the
/// file.
[[nodiscard]] TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& name);

/// The same tokenizer for Hugging Face's library. What that file may say beyond a TokenizerSpec (templates, truncation)
/// is null.
[[nodiscard]] std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace echelon
