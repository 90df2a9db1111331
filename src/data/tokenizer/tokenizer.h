// Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; on bytes: Radford et al. 2019): text to token
// ids and back, byte for byte.
#pragma once

#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace echelon {

/// Gives the same ids as Hugging Face's library for the same tokenizer.json without its templates. Any bytes are valid
/// text. Decoding returns the text byte for byte, or in form NFC if the tokenizer normalizes. Thread-safe.
class Tokenizer {
 public:
  /// Throws Error, starting with `name`, if one of the 256 bytes has no token, or tokens and merges contradict each
  /// other.
  explicit Tokenizer(TokenizerSpec spec, const std::string& name = "tokenizer");
  /// Throws Error if the file cannot be read or is not what parse_tokenizer_json reads.
  [[nodiscard]] static Tokenizer load(const std::string& path);
  /// Throws Failure if the file cannot be written.
  void save(const std::string& path) const;

  /// One more than the largest id.
  [[nodiscard]] std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// Added tokens in the text are recognized. For much text, an Encoder is faster.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Throws Error on an id that is not a token.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  /// The bytes of one token, possibly part of a character. Throws Error on an id that is not a token.
  [[nodiscard]] std::string_view bytes(std::int32_t id) const;
  /// The id of an added token, if there is one with this content.
  [[nodiscard]] std::optional<std::int32_t> added_token(std::string_view content) const;
  /// The token between documents: the first of <|endoftext|>, <|end_of_text|> and </s> that the tokenizer has.
  [[nodiscard]] std::optional<std::int32_t> end_of_document() const;

 private:
  friend class Encoder;
  struct Ranked {
    std::int32_t rank, result;
  };
  void append_merged(std::string_view piece, std::vector<std::int32_t>& ids) const;
  const Ranked* find_merge(std::int32_t left, std::int32_t right) const;

  TokenizerSpec spec_;
  Splitter splitter_;
  std::vector<std::string_view> bytes_;  // by id, views into spec_
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Ranked> merges_;
  std::unordered_map<std::string_view, std::int32_t> whole_pieces_;
  std::vector<const AddedToken*> longest_added_first_;
  std::string first_bytes_of_added_;
};

/// Encodes with a cache of pieces. For one thread; the tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void append(std::string_view text, std::vector<std::int32_t>& ids);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const;
  };
  struct Known {
    std::uint32_t first, count;  // in known_ids_
  };
  void append_plain(std::string_view text, std::vector<std::int32_t>& ids);
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::unordered_map<std::string, Known, Hash, std::equal_to<>> known_;
  std::vector<std::int32_t> known_ids_;
};

}  // namespace echelon
