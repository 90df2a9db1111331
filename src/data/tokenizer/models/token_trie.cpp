#include "data/tokenizer/models/token_trie.h"

#include <algorithm>

namespace echelon {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  const auto has_less_bytes = [](const Entry& a, const Entry& b) { return a.first < b.first; };
  std::stable_sort(entries.begin(), entries.end(), has_less_bytes);
  insert(entries, 0, entries.size(), 0, 0);
}

/// Entries `begin` to `end - 1` start with the bytes of the node, which is at `depth`.
void TokenTrie::insert(const std::vector<Entry>& entries, std::size_t begin, std::size_t end, std::size_t depth,
                       std::uint32_t node) {
  for (; begin < end && entries[begin].first.size() == depth; ++begin) {
    if (cells_[node].token < 0) cells_[node].token = entries[begin].second;
  }
  if (begin == end) return;
  Bytes bytes;
  std::vector<std::size_t> starts;
  for (std::size_t i = begin; i < end; ++i) {
    const auto byte = static_cast<std::uint8_t>(entries[i].first[depth]);
    if (!bytes.empty() && bytes.back() == byte) continue;
    bytes.push_back(byte);
    starts.push_back(i);
  }
  starts.push_back(end);
  const std::uint32_t children = place_for(bytes);
  cells_[node].children = children;
  for (const std::uint8_t byte : bytes) cells_[children + byte].parent = node;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    insert(entries, starts[i], starts[i + 1], depth + 1, children + bytes[i]);
}

/// The first place where the cells of all bytes are free. After many failures the next search starts later.
std::uint32_t TokenTrie::place_for(const Bytes& bytes) {
  const auto is_free = [&](std::uint32_t cell) { return cell >= cells_.size() || cells_[cell].parent == none; };
  while (!is_free(first_free_)) ++first_free_;
  std::uint32_t place = first_free_ > bytes[0] ? first_free_ - bytes[0] : 1;
  std::uint32_t num_failures = 0;
  const auto fits = [&] {
    return std::all_of(bytes.begin(), bytes.end(), [&](std::uint8_t byte) { return is_free(place + byte); });
  };
  for (; !fits(); ++place) ++num_failures;
  if (num_failures > 256) first_free_ += num_failures / 8;
  if (place + 2 * 256 > cells_.size()) cells_.resize(std::max<std::size_t>(place + 2 * 256, cells_.size() * 3 / 2));
  return place;
}

}  // namespace echelon
