// Encodes much text with one tokenizer.
#pragma once

#include "data/tokenizer/tokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Remembers the ids of pieces, in at most 8 MiB. For one thread; the tokenizer must outlive it.
class Encoder {
 public:
  /// Without parses_control, control tokens in a text are text like any other.
  explicit Encoder(const Tokenizer& tokenizer, bool parses_control = true);

  void append(std::string_view text, std::vector<std::int32_t>& ids);
  /// Control tokens that were text so far.
  [[nodiscard]] std::int64_t num_control_as_text() const { return num_control_as_text_; }

 private:
  class Pieces;
  // A piece with its ids, in one cache line.
  struct alignas(64) Slot {
    std::uint8_t length = 0, num_ids = 0;
    char bytes[30] = {};
    std::int32_t ids[8] = {};
  };
  void append_raw(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_normalized(std::string_view text, bool starts_text, std::vector<std::int32_t>& ids);
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  void append_by_model(std::string_view piece, std::vector<std::int32_t>& ids);
  void remember(const Slot& slot, std::uint64_t hash);
  void grow();

  const Tokenizer& tokenizer_;
  bool parses_control_;
  std::int64_t num_control_as_text_ = 0;
  std::vector<Slot> slots_;
  std::size_t num_known_ = 0;
  std::string normalized_;
};

}  // namespace echelon
