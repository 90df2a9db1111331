#include "data/tokenizer/models/bpe_model.h"

#include "base/error.h"
#include "base/utf8.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace echelon {
namespace {

constexpr std::string_view space_mark = "\xe2\x96\x81";  // U+2581, which SentencePiece puts for a space
constexpr std::size_t few_symbols = 48;                  // up to here, a search of all pairs is faster than a heap

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec, const std::string& name)
    : is_byte_level_(spec.model == TokenModel::byte_level),
      prefers_whole_pieces_(spec.prefers_whole_pieces),
      fuses_unknown_(spec.fuses_unknown),
      unknown_(spec.unknown),
      merges_(spec.merges) {
  const auto is_reachable = [&](std::size_t id) {
    return !std::binary_search(spec.no_bytes.begin(), spec.no_bytes.end(), static_cast<std::int32_t>(id));
  };
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty() && is_reachable(id))
      whole_pieces_.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
  }
  for (const AddedToken& added : spec.added) {
    if (added.is_special) control_.insert(added.id);
  }
  has_bytes_ = is_byte_level_ || spec.has_byte_fallback;
  for (std::size_t byte = 0; byte < byte_ids_.size() && has_bytes_; ++byte) {
    const std::string token =
        is_byte_level_ ? std::string(1, static_cast<char>(byte)) : fmt::format("<0x{:02X}>", byte);
    const auto found = whole_pieces_.find(token);
    require(found != whole_pieces_.end() || !is_byte_level_,
            "{} has no token for byte {:#04x}; byte-level BPE needs all 256", name, byte);
    byte_ids_[byte] = found == whole_pieces_.end() ? -1 : found->second;
  }
  const auto num_tokens = static_cast<std::int32_t>(spec.tokens.size());
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right, result] = spec.merges[rank];
    require(std::max({left, right, result}) < num_tokens && std::min({left, right, result}) >= 0,
            "{}: merge {} names a token that does not exist", name, rank);
  }
  if (!is_byte_level_) find_safe_cuts(spec);
}

// A text without pieces is one piece of BPE. If no merge has a mark after a character, the text may be split
// there.
void BpeModel::find_safe_cuts(const TokenizerSpec& spec) {
  has_safe_cuts_ = whole_pieces_.contains(space_mark);
  for (const Merge& merge : spec.merges) {
    const std::string& left = spec.tokens[static_cast<std::size_t>(merge.left)];
    const std::string& right = spec.tokens[static_cast<std::size_t>(merge.right)];
    const auto is_no_text = [&](std::int32_t id) {
      return id == unknown_ || (has_bytes_ && std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end());
    };
    if (right.starts_with(space_mark) && !left.empty()) {
      std::size_t at = previous_code_point(left, left.size());
      unsafe_before_mark_.insert(next_code_point(left, at));
    }
    if (unknown_ || has_bytes_) has_safe_cuts_ = has_safe_cuts_ && !is_no_text(merge.left) && !is_no_text(merge.right);
  }
}

std::size_t BpeModel::safe_prefix(std::string_view piece) const {
  if (!has_safe_cuts_ || prefers_whole_pieces_) return piece.size();
  for (std::size_t at = piece.find(space_mark, 1); at != std::string_view::npos; at = piece.find(space_mark, at + 1)) {
    std::size_t before = previous_code_point(piece, at);
    if (utf8_character_length(piece.substr(before)) != at - before) continue;
    if (!unsafe_before_mark_.contains(next_code_point(piece, before))) return at;
  }
  return piece.size();
}

void BpeModel::append_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const {
  if (is_byte_level_) {
    for (const char byte : piece) symbols.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
    return;
  }
  bool was_unknown = false;
  while (!piece.empty()) {
    const std::size_t length = utf8_character_length(piece);
    const std::string_view character = piece.substr(0, std::max<std::size_t>(length, 1));
    piece.remove_prefix(character.size());
    const auto found = length > 0 ? whole_pieces_.find(character) : whole_pieces_.end();
    const auto has_byte = [&](char byte) { return byte_ids_[static_cast<std::uint8_t>(byte)] >= 0; };
    if (found != whole_pieces_.end()) {
      symbols.push_back(found->second);
    } else if (has_bytes_ && std::all_of(character.begin(), character.end(), has_byte)) {
      for (const char byte : character) symbols.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
      continue;  // the library keeps an unknown character before it for later
    } else if (unknown_ && !(was_unknown && fuses_unknown_)) {
      symbols.push_back(*unknown_);
    }
    was_unknown = found == whole_pieces_.end();
  }
}

void BpeModel::append(std::string_view piece, bool may_be_control, std::vector<std::int32_t>& ids) const {
  if (prefers_whole_pieces_) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end() && (may_be_control || !control_.contains(whole->second)))
      return ids.push_back(whole->second);
  }
  std::vector<std::int32_t> symbols;
  append_symbols(piece, symbols);
  symbols.size() <= few_symbols ? merge_few(symbols, ids) : merge_many(symbols, ids);
}

void BpeModel::merge_few(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const {
  constexpr std::int32_t no_rank = std::numeric_limits<std::int32_t>::max();
  std::array<std::int32_t, few_symbols> id, rank, result;  // rank and result: of the pair that starts here
  std::size_t count = symbols.size();
  std::copy(symbols.begin(), symbols.end(), id.begin());
  const auto look_up = [&](std::size_t i) {
    const MergeTable::Entry* merge = i + 1 < count ? merges_.find(id[i], id[i + 1]) : nullptr;
    rank[i] = merge != nullptr ? merge->rank : no_rank;
    result[i] = merge != nullptr ? merge->result : 0;
  };
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    const auto end = rank.begin() + static_cast<std::ptrdiff_t>(count);
    const auto best = std::min_element(rank.begin(), end);
    if (*best == no_rank) break;
    const auto at = static_cast<std::size_t>(best - rank.begin());
    id[at] = result[at];
    for (std::size_t i = at + 1; i + 1 < count; ++i) {
      id[i] = id[i + 1];
      rank[i] = rank[i + 1];
      result[i] = result[i + 1];
    }
    --count;
    look_up(at);
    if (at > 0) look_up(at - 1);
  }
  ids.insert(ids.end(), id.begin(), id.begin() + static_cast<std::ptrdiff_t>(count));
}

// A heap of candidates: O(n log n) also for a piece of a megabyte.
void BpeModel::merge_many(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id, previous, next;  // id -1: merged into its left neighbour
  };
  struct Candidate {
    std::int32_t rank, left, right, left_id, right_id;
    bool operator>(const Candidate& other) const { return std::pair(rank, left) > std::pair(other.rank, other.left); }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  std::vector<Symbol> chain;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto symbol = [&](std::int32_t i) -> Symbol& { return chain[static_cast<std::size_t>(i)]; };
  const auto propose = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right >= count) return;
    if (const MergeTable::Entry* merge = merges_.find(symbol(left).id, symbol(right).id))
      candidates.push({merge->rank, left, right, symbol(left).id, symbol(right).id});
  };
  for (std::int32_t i = 0; i < count; ++i) chain.push_back({symbols[static_cast<std::size_t>(i)], i - 1, i + 1});
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(i, i + 1);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbol(best.left);
    Symbol& right = symbol(best.right);
    if (left.id != best.left_id || right.id != best.right_id || left.next != best.right) continue;
    left.id = merges_.find(left.id, right.id)->result;
    left.next = right.next;
    right.id = -1;
    if (left.next < count) symbol(left.next).previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
  for (std::int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace echelon
