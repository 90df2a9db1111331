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

[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

}  // namespace echelon::jinja
