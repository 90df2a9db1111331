// Encodes much text with one tokenizer.
#pragma once

#include "data/tokenizer/tokenizer.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Bytes of a text that became tokens of their own: an added token, or what is between two of them.
struct EncodedRun {
  std::size_t begin, end, num_ids;
};

/// Remembers the ids of pieces, in at most 16 MiB. For one thread; the tokenizer must outlive it.
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
  // The bytes of a piece, zeros, and its length. Words start with a space, which parts of marked text never do.
  struct Key {
    static constexpr std::size_t longest = 31;
    std::array<std::uint64_t, 4> eights{};
    [[nodiscard]] const char* bytes() const { return reinterpret_cast<const char*>(eights.data()); }
    [[nodiscard]] std::size_t length() const { return static_cast<std::uint8_t>(bytes()[longest]); }
    [[nodiscard]] std::string_view piece() const { return {bytes(), length()}; }
    [[nodiscard]] std::uint64_t hash() const;
    bool operator==(const Key& other) const;
  };
  // A piece with its ids, in one cache line.
  struct alignas(64) Slot {
    Key key;
    std::int32_t ids[7] = {};
    std::uint8_t num_ids = 0;
    [[nodiscard]] bool is_free() const { return key.length() == 0; }
  };
  void append_raw(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_whole(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_normalized(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_words(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  // A piece whose slot is on its way from memory.
  struct Waiting {
    Key key;
    std::uint64_t hash = 0;
  };
  [[nodiscard]] Key key_of(std::string_view piece) const;
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  void append_waiting(std::vector<std::int32_t>& ids);
  void append_new(const Waiting& waiting, std::vector<std::int32_t>& ids);
  [[nodiscard]] const Slot* find(const Waiting& waiting) const;
  void append_by_model(std::string_view piece, std::vector<std::int32_t>& ids);
  void append_word_by_model(std::string_view word, std::vector<std::int32_t>& ids);
  void remember(const Slot& slot, std::uint64_t hash);
  void grow();

  const Tokenizer& tokenizer_;
  ControlRule rule_;
  std::optional<AddedTokenFinder> filtered_;  // all tokens that append_filtered looks for in the text as it is
  std::vector<Slot> slots_;
  std::size_t num_known_ = 0;
  std::array<Waiting, 16> waiting_;
  std::size_t num_waiting_ = 0;
  std::string_view readable_;  // where most pieces are: bytes after a piece may be read with it
  std::string normalized_, marked_;
};

}  // namespace echelon
