// Where BPE on characters may split a text without changing its tokens.
#pragma once

#include "data/tokenizer/models/pair_map.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace echelon {

/// SentencePiece's files make one piece of a whole text. A place is crossed only by a merge whose left token ends the
/// text before it, and whose right token starts the text after it; two characters of each are compared. Elsewhere the
/// text may be split, and the parts are encoded, and remembered, one by one. Thread-safe.
class SafeCuts {
 public:
  /// None: no place is safe.
  SafeCuts() = default;
  /// `is_complete`: every character has tokens, so no two unknown ones become one.
  SafeCuts(const TokenizerSpec& spec, bool is_complete);

  [[nodiscard]] bool any() const { return any_; }

  /// Calls take(part) for each part of a text.
  template <class Take>
  void for_each_part(std::string_view text, const Take& take) const {
    if (!any_ || text.empty()) return take(text);
    std::size_t at = 0, begin = 0;
    Window window{.left = next_character(text, at)};
    std::size_t place = at;  // between left and right
    window.right = next_character(text, at);
    while (place < text.size()) {
      const std::size_t next_place = at;
      window.after = next_character(text, at);
      if (is_safe(window)) {
        take(text.substr(begin, place - begin));
        begin = place;
        window.left = nothing;  // no merge joins what follows with what is before it
      }
      window = {.before = window.left, .left = window.right, .right = window.after};
      place = next_place;
    }
    take(text.substr(begin));
  }

 private:
  // Code points; the mark that SentencePiece puts for a space and DEL are exchanged, so that the mark is small.
  static constexpr char32_t num_small = 128, mark = 0x7f, mark_code = 0x2581, not_utf8 = 0x110000, nothing = 0x110001;
  struct Window {
    char32_t before = nothing, left = nothing, right = nothing, after = nothing;
  };
  // A bit for each form of a merge that joins two characters: is its left token longer than one, and its right token?
  using Forms = std::uint8_t;
  static Forms form(bool is_left_longer, bool is_right_longer) {
    return static_cast<Forms>(1 << (2 * int{is_left_longer} + int{is_right_longer}));
  }

  static char32_t next_character(std::string_view text, std::size_t& at) {
    if (at >= text.size()) return nothing;
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte < mark) return ++at, byte;
    // Most characters of three bytes; those that start with others have more rules.
    if (byte > 0xe0 && byte < 0xed && at + 2 < text.size()) {
      const auto second = static_cast<std::uint8_t>(text[at + 1]), third = static_cast<std::uint8_t>(text[at + 2]);
      const char32_t code = (byte & 0x0fu) << 12 | (second & 0x3fu) << 6 | (third & 0x3fu);
      if ((second & third & 0xc0) == 0x80 && ((second | third) & 0x40) == 0)
        return at += 3, code == mark_code ? mark : code;
    }
    return next_other(text, at);
  }
  static char32_t next_other(std::string_view text, std::size_t& at);

  [[nodiscard]] bool is_safe(const Window& window) const {
    const bool are_small = (window.left | window.right) < num_small;
    const Forms forms = are_small ? small_[window.left][window.right] : forms_of(window.left, window.right);
    return forms == 0 || ((forms & joins_always) == 0 && !is_joined(window, forms));
  }
  static constexpr Forms joins_always = 1;  // two characters are a merge
  void add(const Window& window);
  [[nodiscard]] Forms forms_of(char32_t left, char32_t right) const;
  [[nodiscard]] bool is_joined(const Window& window, Forms forms) const;
  [[nodiscard]] std::size_t bit_of(const Window& window) const;

  bool any_ = false, is_complete_ = false;
  std::array<std::array<Forms, num_small>, num_small> small_{};
  PairMap<Forms> others_;
  std::vector<std::uint64_t> is_merge_;  // a bit per hash of a window of a merge; two that share one join too often
};

}  // namespace echelon
