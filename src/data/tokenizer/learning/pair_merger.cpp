#include "data/tokenizer/learning/pair_merger.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace echelon {

void PairMerger::add_word(std::span<const std::int32_t> symbols, std::int64_t count) {
  require(symbols_.size() + symbols.size() < none,
          "the different words of the text have more than {} bytes; learn from less text", none);
  const auto word = static_cast<std::uint32_t>(word_counts_.size());
  word_counts_.push_back(count);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const auto place = static_cast<std::uint32_t>(symbols_.size());
    const bool is_last = i + 1 == symbols.size();
    symbols_.push_back({symbols[i], i > 0 ? place - 1 : none, is_last ? none : place + 1, word});
    if (!is_last) count_new(place, {symbols[i], symbols[i + 1]}, count);
  }
}

void PairMerger::start() { push_lists(); }

void PairMerger::count_new(std::uint32_t place, SymbolPair pair, std::int64_t count) {
  SymbolPairCounts::Use& use = uses_[pair];
  use.count += count;
  if (use.list < 0) {
    use.list = static_cast<std::int64_t>(lists_.size());
    lists_.push_back({.pair = pair, .places = {}});
  }
  lists_[static_cast<std::size_t>(use.list)].places.push_back(place);
}

void PairMerger::push_lists() {
  for (Candidate& made : lists_) {
    SymbolPairCounts::Use& use = uses_[made.pair];
    use.list = -1;
    made.count = use.count;
    if (made.count > 0) push(std::move(made));
  }
  lists_.clear();
}

void PairMerger::push(Candidate candidate) {
  heap_.push_back(std::move(candidate));
  std::push_heap(heap_.begin(), heap_.end());
}

// Counts may have decreased since they were pushed.
PairMerger::Candidate PairMerger::pop_best() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    Candidate best = std::move(heap_.back());
    heap_.pop_back();
    const std::int64_t count = uses_[best.pair].count;
    if (best.count == count) return best;
    best.count = count;
    push(std::move(best));
  }
  return {};
}

void PairMerger::merge(const Candidate& candidate, std::int32_t result) {
  for (const std::uint32_t place : candidate.places) merge_at(place, candidate.pair, result);
  push_lists();
}

// From left to right, which handles overlaps such as aaaa.
void PairMerger::merge_at(std::uint32_t place, SymbolPair pair, std::int32_t result) {
  Symbol& left = symbols_[place];
  if (left.id != pair.first || left.next == none || symbols_[left.next].id != pair.second) return;
  Symbol& right = symbols_[left.next];
  const std::int64_t count = word_counts_[left.word];
  left.id = result;
  left.next = right.next;
  right.id = gone;
  if (left.previous != none) {
    const std::int32_t before = symbols_[left.previous].id;
    uses_[{before, pair.first}].count -= count;
    count_new(left.previous, {before, result}, count);
  }
  if (left.next != none) {
    Symbol& after = symbols_[left.next];
    after.previous = place;
    uses_[{pair.second, after.id}].count -= count;
    count_new(place, {result, after.id}, count);
  }
}

}  // namespace echelon
