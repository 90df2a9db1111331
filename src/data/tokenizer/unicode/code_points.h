// Sets of Unicode's code points, and UTF-8 of single ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

inline constexpr char32_t num_code_points = 0x110000;

/// The code points `first` to `end - 1`.
struct CodePointRange {
  char32_t first, end;
  bool operator==(const CodePointRange&) const = default;
};

/// A set as ascending ranges that do not touch.
class CodePointSet {
 public:
  CodePointSet() = default;
  /// In any order, overlapping or not.
  explicit CodePointSet(std::vector<CodePointRange> ranges);

  [[nodiscard]] bool contains(char32_t code) const;
  [[nodiscard]] const std::vector<CodePointRange>& ranges() const { return ranges_; }
  [[nodiscard]] CodePointSet united(const CodePointSet& other) const;
  [[nodiscard]] CodePointSet complement() const;

 private:
  std::vector<CodePointRange> ranges_;
};

/// A character of valid UTF-8 that starts at text[at]; `at` moves after it.
[[nodiscard]] inline char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<std::uint8_t>(text[at + i])); };
  const char32_t first = byte(0);
  char32_t code = first;
  std::size_t length = 1;
  if (first >= 0xf0) {
    code = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    length = 4;
  } else if (first >= 0xe0) {
    code = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    length = 3;
  } else if (first >= 0xc0) {
    code = (first & 0x1f) << 6 | (byte(1) & 0x3f);
    length = 2;
  }
  at += length;
  return code;
}

/// Where the character before `at` starts in valid UTF-8. at > 0.
[[nodiscard]] inline std::size_t previous_code_point(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<std::uint8_t>(text[at]) & 0xc0) == 0x80);
  return at;
}

void append_utf8(char32_t code, std::string& text);

}  // namespace echelon
