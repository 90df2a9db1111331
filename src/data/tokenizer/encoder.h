// Encodes much text with one tokenizer.
#pragma once

#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/tokenizer.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Bytes of a text that became tokens of their own: an added token, or what is between two of them.
struct EncodedRun {
  std::size_t begin, end, num_ids;
};

/// Remembers the ids of pieces. For one thread; the tokenizer must outlive it.
class Encoder {
 public:
  /// Without parses_control, control tokens in a text are text like any other.
  explicit Encoder(const Tokenizer& tokenizer, bool parses_control = true);

  void append(std::string_view text, std::vector<std::int32_t>& ids);
  /// As append, with control tokens only where the filter allows them. They are found in the text as it is, also those
  /// that the file lets the library find in normalized text. Returns the runs, in order.
  std::vector<EncodedRun> append_filtered(std::string_view text, const ControlFilter& filter,
                                          std::vector<std::int32_t>& ids);
  /// A run without added tokens, as append_filtered encodes it.
  void append_run(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids) {
    append_raw(text, starts_text, ids);
  }
  /// Control tokens that were text so far.
  [[nodiscard]] std::int64_t num_control_as_text() const { return rule_.num_skipped; }

 private:
  class Pieces;
  void append_raw(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_whole(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_normalized(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_words(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  // A piece whose slot is on its way from memory. Words start with a space, which parts of marked text never do.
  struct Waiting {
    PieceKey key;
    std::uint64_t hash = 0;
  };
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  void append_waiting(std::vector<std::int32_t>& ids);
  void append_new(const PieceKey& key, std::uint64_t hash, std::vector<std::int32_t>& ids);
  void append_new_word(std::string_view word, std::vector<std::int32_t>& ids);
  void append_by_model(std::string_view piece, std::vector<std::int32_t>& ids);

  const Tokenizer& tokenizer_;
  ControlRule rule_;
  std::optional<AddedTokenFinder> filtered_;  // all tokens that append_filtered looks for in the text as it is
  PieceCache known_;
  std::array<Waiting, 16> waiting_;
  std::size_t num_waiting_ = 0;
  std::string_view readable_;  // where most pieces are: bytes after a piece may be read with it
  std::string normalized_, marked_;
};

}  // namespace echelon
