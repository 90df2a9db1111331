// Text to token ids and back, as a tokenizer's file says it (tokenizer_spec.h).
#pragma once

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/models/bpe_model.h"
#include "data/tokenizer/models/unigram_model.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/spaced_words.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace echelon {

/// Which added tokens one pass looks for.
enum class AddedTokenKind : std::uint8_t { raw, normalized, raw_or_control };

/// Gives the same ids as Hugging Face's library for the same tokenizer.json. Any bytes are valid text. Decoding returns
/// the text as it was normalized, byte for byte. Thread-safe.
class Tokenizer {
 public:
  /// Throws Error, starting with `name`, if tokens, merges and scores contradict each other.
  explicit Tokenizer(TokenizerSpec spec, const std::string& name = "tokenizer");
  /// A tokenizer.json, or another file that read_tokenizer reads (tokenizer_files.h). Throws Error if it cannot be
  /// read. `pattern` is for files of ranks.
  [[nodiscard]] static Tokenizer load(const std::string& path, const std::string& pattern = "");
  /// Throws Failure if the file cannot be written.
  void save(const std::string& path) const;

  /// One more than the largest id.
  [[nodiscard]] std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// Added tokens in the text are recognized. For much text, an Encoder is faster.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// The same with what the file's template adds.
  [[nodiscard]] std::vector<std::int32_t> encode_with_template(std::string_view text) const;
  /// Throws Error on an id that is not a token.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  /// The bytes of one token inside a text, possibly part of a character. Throws Error on an id that is not a token.
  [[nodiscard]] std::string_view bytes(std::int32_t id) const;
  /// The id of an added token, if there is one with this content.
  [[nodiscard]] std::optional<std::int32_t> added_token(std::string_view content) const;
  /// The same, or else of a token of the vocabulary.
  [[nodiscard]] std::optional<std::int32_t> token_of(std::string_view content) const;
  /// The token between documents: what the files next to it call the end of a sequence; without them, its only control
  /// token, or <|endoftext|> if it has that.
  [[nodiscard]] std::optional<std::int32_t> end_of_document() const;
  void set_end_of_document(std::int32_t id) { end_of_document_ = id; }
  [[nodiscard]] const TokenizerSpec& spec() const { return spec_; }

 private:
  friend class Encoder;
  [[nodiscard]] AddedTokenFinder finder(AddedTokenKind kind) const;
  [[nodiscard]] std::string normalized(const std::string& content) const;
  [[nodiscard]] std::string in_file(std::int32_t id) const;

  TokenizerSpec spec_;
  Normalizer normalizer_;
  Splitter splitter_;
  std::variant<BpeModel, UnigramModel> model_;
  std::optional<SpacedWords> words_;
  TokenDecoder decoder_;
  AddedTokenFinder raw_added_, normalized_added_;
  std::vector<std::string> bytes_;  // by id, decoded alone
  std::vector<bool> is_token_;
  std::optional<std::int32_t> end_of_document_;
};

}  // namespace echelon
