// A tokenizer as plain values, as Hugging Face's tokenizer.json states it: a text is searched for added tokens,
// normalized, split into pieces, and encoded piece by piece by the model.
#pragma once

#include "data/tokenizer/splitting/text_pattern.h"
#include "data/tokenizer/unicode/normal_forms.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Adjacent tokens `left` and `right` become `result`, whose bytes are theirs concatenated.
struct Merge {
  std::int32_t left, right, result;
  bool operator==(const Merge&) const = default;
};

/// A token that is matched in the text before any other. It need not be in the vocabulary of the model.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool is_special;  // a control token
  bool is_normalized =
      false;  // found in normalized text, as its normalized content; the others are found first, in raw text
  bool strips_left = false;  // takes the white space before it along
  bool strips_right = false;
  bool is_single_word = false;  // not next to characters of words
  bool operator==(const AddedToken&) const = default;
};

struct NormalizerStep {
  enum class Kind : std::uint8_t { form, lowercase, strip, prepend, replace, character_map };
  Kind kind;
  NormalForm form = NormalForm::nfc;
  std::string pattern = {};  // of replace
  bool is_regex = false;
  std::string content = {};  // of replace and prepend; the rules of a character map
  bool strips_left = true, strips_right = true;
  bool operator==(const NormalizerStep&) const = default;
};

enum class PrependScheme : std::uint8_t { always, first, never };

struct SplitStep {
  enum class Kind : std::uint8_t { split, byte_level, digits, metaspace, punctuation, whitespace, whitespace_split };
  Kind kind = Kind::split;
  std::string pattern = {};  // of split; of metaspace what it puts for a space
  bool is_regex = true;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool is_inverted = false;
  bool is_individual = false;                     // digits: each alone
  bool adds_space = false;                        // byte_level: before the first word
  PrependScheme prepend = PrependScheme::always;  // metaspace: where it is put before the text
  bool splits = true;                             // metaspace: also splits; byte_level: by GPT-2's pattern
  bool operator==(const SplitStep&) const = default;
};

struct DecodeStep {
  enum class Kind : std::uint8_t { byte_level, byte_fallback, replace, strip, metaspace, fuse };
  Kind kind;
  std::string pattern = {};  // of replace, strip and metaspace
  bool is_regex = false;
  std::string content = {};
  std::int64_t start = 0, stop = 0;              // strip: at most so many characters
  PrependScheme prepend = PrependScheme::never;  // metaspace: unless never, the first token loses its mark
  bool operator==(const DecodeStep&) const = default;
};

enum class TokenModel : std::uint8_t {
  byte_level,  // BPE on bytes
  bpe,         // BPE on characters
  unigram,     // the most likely tokens (Kudo 2018, arXiv:1804.10959)
};

struct TokenizerSpec {
  TokenModel model = TokenModel::byte_level;
  // By id; empty if the vocabulary of the model lacks the id. Bytes if the model is byte_level, else text.
  std::vector<std::string> tokens;
  std::vector<std::int32_t> no_bytes;  // byte_level: tokens that the file does not write in its alphabet, ascending
  std::vector<Merge> merges;           // the earliest has priority
  std::vector<double> scores;          // unigram: by id
  bool has_float32_sums = false;       // unigram: of scores, as SentencePiece's; they decide where paths tie
  std::optional<std::int32_t> unknown;
  bool fuses_unknown = false, has_byte_fallback = false;
  // A piece that is a token is encoded as that token, regardless of the merges (ignore_merges in the file).
  bool prefers_whole_pieces = false;
  std::vector<AddedToken> added;  // by id
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splitter;
  std::vector<DecodeStep> decoder;
  std::vector<std::int32_t> before_text, after_text;  // what the file's template adds
  bool operator==(const TokenizerSpec&) const = default;
};

/// The document separator that trained tokenizers get.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// U+2581, which SentencePiece's files put for a space.
inline constexpr std::string_view space_mark = "\xe2\x96\x81";

/// GPT-2's pattern (Radford et al. 2019): contractions, then runs of letters, digits or other marks with the space
/// before them, then white space without the last space if a word follows.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Splits around every match of the pattern and then leaves the pieces to a byte-level model.
[[nodiscard]] std::vector<SplitStep> byte_level_splitter(const std::vector<std::string>& patterns);

/// Reads a tokenizer.json. `name` is for messages. Throws Error naming the invalid or unsupported field of the file.
[[nodiscard]] TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& name);

/// The same tokenizer for Hugging Face's library. Truncation and padding are null.
[[nodiscard]] std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace echelon
