// The tokens of a Jinja template, with blanks around tags removed as transformers sets Jinja up: trim_blocks and
// lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::jinja {

/// Both count from 1; the column counts bytes.
struct Place {
  int line = 1, column = 1;
};

enum class TokenKind : std::uint8_t {
  text,
  open_block,
  close_block,
  open_output,
  close_output,
  name,
  whole,
  real,
  string,
  sign,
  end
};

struct Token {
  TokenKind kind{};
  std::string text;
  Place place;
};

/// Throws Error with line and column: "chat template, line 3, column 5: ...".
[[noreturn]] void refuse(Place place, std::string_view why);

/// One past the last byte of the number that starts here.
std::size_t end_of_number(std::string_view source, std::size_t start, bool& is_real);

/// Adds what an escape of a string means, as in Python; `rest` is what follows the backslash. Returns the bytes taken.
std::size_t append_escape(std::string_view rest, std::string& text, Place place);

[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

}  // namespace echelon::jinja
