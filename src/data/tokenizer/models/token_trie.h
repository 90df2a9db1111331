// Tokens by their bytes: a trie in two arrays (Aoe 1989, "An efficient digital search algorithm by using a double-array
// structure").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

/// Thread-safe once it is made.
class TokenTrie {
 public:
  using Entry = std::pair<std::string_view, std::int32_t>;  // bytes, not empty, and id

  TokenTrie() = default;
  /// Of equal bytes the first id counts.
  explicit TokenTrie(std::vector<Entry> entries);

  /// The longest token that starts the text; -1 if there is none.
  [[nodiscard]] std::int32_t longest(std::string_view text) const {
    std::int32_t token = -1;
    std::uint32_t node = 0;
    for (const char c : text) {
      const std::uint32_t next = cells_[node].children + static_cast<std::uint8_t>(c);
      if (cells_[next].parent != node) break;
      node = next;
      if (cells_[node].token >= 0) token = cells_[node].token;
    }
    return token;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Cell {
    std::uint32_t children = 0;   // where they would start, by byte
    std::uint32_t parent = none;  // whose child the cell is
    std::int32_t token = -1;
  };
  using Bytes = std::vector<std::uint8_t>;
  void insert(const std::vector<Entry>& entries, std::size_t begin, std::size_t end, std::size_t depth,
              std::uint32_t node);
  std::uint32_t place_for(const Bytes& bytes);

  std::vector<Cell> cells_ = std::vector<Cell>(256);
  std::uint32_t first_free_ = 1;
};

}  // namespace echelon
