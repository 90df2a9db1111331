// Finds added tokens in a text, as Hugging Face's library does: the leftmost, and of those the longest.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

/// Where a text may hold control tokens, if only parts of it may.
class ControlFilter {
 public:
  virtual ~ControlFilter() = default;
  [[nodiscard]] virtual bool allows(std::size_t begin, std::size_t end) const = 0;
};

/// What becomes of control tokens in a text.
struct ControlRule {
  bool skips = false;                     // they are text
  const ControlFilter* filter = nullptr;  // those that it does not allow are text
  std::int64_t num_skipped = 0;
};

/// One pass over a text: for the tokens that are found in raw text, or for those in normalized text. Thread-safe.
class AddedTokenFinder {
 public:
  struct Found {
    std::size_t begin, end;  // with the white space that the token takes along
    const AddedToken* token;
  };

  /// Looks for `contents[i]` as tokens[i], whose addresses must last.
  AddedTokenFinder(std::vector<const AddedToken*> tokens, std::vector<std::string> contents);

  /// The first token at or after `from`; token is null if there is none. `done` is where the last token ended.
  [[nodiscard]] Found find(std::string_view text, std::size_t& from, std::size_t done, ControlRule& rule) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    std::int32_t token = -1;
  };
  [[nodiscard]] std::pair<std::int32_t, std::size_t> longest_at(std::string_view text, std::size_t at,
                                                                const ControlFilter* filter) const;

  std::vector<const AddedToken*> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> is_first_byte_{};
  std::optional<char>
      only_first_byte_;  // most files have tokens that start with '<' alone, and a text is searched fast
};

}  // namespace echelon
