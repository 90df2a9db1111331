// How often each word of a text occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

class WordCounts {
 public:
  void add(std::string_view word);

  [[nodiscard]] std::size_t size() const { return words_.size(); }
  /// All words, one after another in the order of their first occurrence.
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string_view word(std::size_t i) const;
  [[nodiscard]] std::int64_t count(std::size_t i) const { return words_[i].count; }

 private:
  struct Word {
    std::size_t begin;  // in bytes_, as far as the start of the next one
    std::int64_t count;
  };
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t word = none;
  };
  static constexpr std::size_t none = ~std::size_t{0};
  void grow();

  std::string bytes_;
  std::vector<Word> words_;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);  // an open hash table, at most half full
};

}  // namespace echelon
