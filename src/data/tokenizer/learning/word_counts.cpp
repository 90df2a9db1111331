#include "data/tokenizer/learning/word_counts.h"

#include <xxhash.h>

#include <utility>

namespace echelon {

std::string_view WordCounts::word(std::size_t i) const {
  const std::size_t end = i + 1 < words_.size() ? words_[i + 1].begin : bytes_.size();
  return std::string_view(bytes_).substr(words_[i].begin, end - words_[i].begin);
}

void WordCounts::add(std::string_view word) {
  const std::uint64_t hash = XXH3_64bits(word.data(), word.size());
  std::size_t place = hash & (slots_.size() - 1);
  for (; slots_[place].word != none; place = (place + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[place];
    if (slot.hash == hash && this->word(slot.word) == word) {
      ++words_[slot.word].count;
      return;
    }
  }
  slots_[place] = {hash, words_.size()};
  words_.push_back({bytes_.size(), 1});
  bytes_ += word;
  if (2 * words_.size() > slots_.size()) grow();
}

void WordCounts::grow() {
  std::vector<Slot> old(4 * slots_.size());
  std::swap(old, slots_);
  for (const Slot& slot : old) {
    if (slot.word == none) continue;
    std::size_t place = slot.hash & (slots_.size() - 1);
    while (slots_[place].word != none) place = (place + 1) & (slots_.size() - 1);
    slots_[place] = slot;
  }
}

}  // namespace echelon
