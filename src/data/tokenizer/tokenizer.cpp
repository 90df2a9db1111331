#include "data/tokenizer/tokenizer.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "data/files/mapped_file.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace echelon {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& name) : spec_(std::move(spec)), splitter_(spec_.patterns) {
  for (const std::string& token : spec_.tokens) bytes_.push_back(token);
  for (std::size_t id = 0; id < bytes_.size(); ++id) {
    if (!bytes_[id].empty()) whole_pieces_.emplace(bytes_[id], static_cast<std::int32_t>(id));
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto found = whole_pieces_.find(std::string(1, static_cast<char>(byte)));
    require(found != whole_pieces_.end(), "{} has no token for byte {:#04x}; byte-level BPE needs all 256", name, byte);
    byte_ids_[byte] = found->second;
  }
  for (std::size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto [left, right, result] = spec_.merges[rank];
    require(std::max({left, right, result}) < vocab_size() && std::min({left, right, result}) >= 0,
            "{}: merge {} names a token that does not exist", name, rank);
    // Of duplicate pairs, the last one counts.
    merges_.insert_or_assign(pair_key(left, right), Ranked{static_cast<std::int32_t>(rank), result});
  }
  for (const AddedToken& added : spec_.added) {
    const auto slot = static_cast<std::size_t>(added.id);
    if (bytes_.size() <= slot) bytes_.resize(slot + 1);
    bytes_[slot] = added.content;
    longest_added_first_.push_back(&added);
    if (first_bytes_of_added_.find(added.content[0]) == std::string::npos) first_bytes_of_added_ += added.content[0];
  }
  std::stable_sort(longest_added_first_.begin(), longest_added_first_.end(),
                   [](const AddedToken* a, const AddedToken* b) { return a->content.size() > b->content.size(); });
}

Tokenizer Tokenizer::load(const std::string& path) {
  const MappedFile file(path);
  return Tokenizer(parse_tokenizer_json(file.bytes(), path), path);
}

void Tokenizer::save(const std::string& path) const { write_durably(path, to_tokenizer_json(spec_)); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Encoder(*this).append(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += bytes(id);
  return text;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  require(id >= 0 && id < vocab_size() && !bytes_[static_cast<std::size_t>(id)].empty(),
          "token {} is not in the tokenizer, which has ids below {}", id, vocab_size());
  return bytes_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& added : spec_.added) {
    if (added.content == content) return added.id;
  }
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::end_of_document() const {
  for (const std::string_view name : {end_of_text, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    if (const auto id = added_token(name)) return id;
  }
  return std::nullopt;
}

const Tokenizer::Ranked* Tokenizer::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// Merges pairs in order of rank, then from left to right, with a heap of candidates over a linked list of symbols: n
// log n for a piece of a million bytes. A candidate is stale if either symbol has changed since.
void Tokenizer::append_merged(std::string_view piece, std::vector<std::int32_t>& ids) const {
  require(piece.size() < std::numeric_limits<std::int32_t>::max(),
          "a text has {} bytes without a place to split it, which is too long to encode", piece.size());
  struct Symbol {
    std::int32_t id, previous, next;
  };
  struct Candidate {
    std::int32_t rank, left, right, left_id, right_id;
    bool operator>(const Candidate& other) const { return std::pair(rank, left) > std::pair(other.rank, other.left); }
  };
  const auto count = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto propose = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right >= count) return;
    if (const Ranked* merge = find_merge(symbol(left).id, symbol(right).id))
      candidates.push({merge->rank, left, right, symbol(left).id, symbol(right).id});
  };
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({byte_ids_[static_cast<std::uint8_t>(piece[static_cast<std::size_t>(i)])], i - 1, i + 1});
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(i, i + 1);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbol(best.left);
    Symbol& right = symbol(best.right);
    if (left.id != best.left_id || right.id != best.right_id || left.next != best.right) continue;
    left.id = find_merge(left.id, right.id)->result;
    left.next = right.next;
    right.id = -1;
    if (left.next < count) symbol(left.next).previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
  for (std::int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace echelon
