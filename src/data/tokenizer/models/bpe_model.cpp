#include "data/tokenizer/models/bpe_model.h"

#include "base/error.h"
#include "base/text/utf8.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace echelon {
namespace {

constexpr std::size_t few_symbols = 160;  // up to here, a search of all pairs is faster than a heap
constexpr std::int32_t no_rank = PairMerge().rank;

/// The least id of a token of one ASCII character.
std::int32_t first_character(const std::vector<std::string>& tokens) {
  const auto is_character = [](const std::string& token) { return token.size() == 1 && token[0] >= 0; };
  const auto first = std::find_if(tokens.begin(), tokens.end(), is_character);
  return first == tokens.end() ? 0 : static_cast<std::int32_t>(first - tokens.begin());
}

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec, const std::string& name)
    : is_byte_level_(spec.model == TokenModel::byte_level),
      prefers_whole_pieces_(spec.prefers_whole_pieces),
      fuses_unknown_(spec.fuses_unknown),
      unknown_(spec.unknown),
      merges_(spec.merges, first_character(spec.tokens)) {
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
  search_ =
      TokenSearch(spec, merges_, is_byte_level_ ? std::vector(byte_ids_.begin(), byte_ids_.end()) : find_characters());
  if (!is_byte_level_ && !prefers_whole_pieces_) safe_cuts_ = safe_cuts(spec);
}

/// Returns the tokens of one character.
std::vector<std::int32_t> BpeModel::find_characters() {
  characters_ = PairMap<std::int32_t>(whole_pieces_.size());
  std::vector<std::int32_t> found;
  for (const auto& [token, id] : whole_pieces_) {
    if (utf8_character_length(token) != token.size()) continue;
    std::size_t at = 0;
    characters_.set(0, next_code_point(token, at), id);
    found.push_back(id);
  }
  return found;
}

// A byte or the unknown token that merges stands for characters that SafeCuts does not see.
SafeCuts BpeModel::safe_cuts(const TokenizerSpec& spec) const {
  const auto is_no_text = [&](std::int32_t id) {
    return id == unknown_ || (has_bytes_ && std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end());
  };
  for (const Merge& merge : spec.merges) {
    if (is_no_text(merge.left) || is_no_text(merge.right)) return {};
  }
  const bool is_complete = has_bytes_ && std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  return is_complete || whole_pieces_.contains(space_mark) ? SafeCuts(spec, is_complete) : SafeCuts();
}

std::size_t BpeModel::symbols_of(std::string_view piece, std::int32_t* symbols) const {
  std::int32_t* next = symbols;
  if (is_byte_level_) {
    for (const char byte : piece) *next++ = byte_ids_[static_cast<std::uint8_t>(byte)];
    return piece.size();
  }
  bool was_unknown = false;
  while (!piece.empty()) {
    const std::size_t length = utf8_character_length(piece);
    const std::string_view character = piece.substr(0, std::max<std::size_t>(length, 1));
    piece.remove_prefix(character.size());
    std::size_t at = 0;
    const std::int32_t* found = length > 0 ? characters_.find(0, next_code_point(character, at)) : nullptr;
    const auto has_byte = [&](char byte) { return byte_ids_[static_cast<std::uint8_t>(byte)] >= 0; };
    if (found != nullptr) {
      *next++ = *found;
    } else if (has_bytes_ && std::all_of(character.begin(), character.end(), has_byte)) {
      for (const char byte : character) *next++ = byte_ids_[static_cast<std::uint8_t>(byte)];
      continue;  // the library keeps an unknown character before it for later
    } else if (unknown_ && !(was_unknown && fuses_unknown_)) {
      *next++ = *unknown_;
    }
    was_unknown = found == nullptr;
  }
  return static_cast<std::size_t>(next - symbols);
}

void BpeModel::append(std::string_view piece, bool may_be_control, std::vector<std::int32_t>& ids) const {
  if (prefers_whole_pieces_) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end() && (may_be_control || !control_.contains(whole->second)))
      return ids.push_back(whole->second);
  }
  if (piece.size() <= TokenSearch::longest_piece && search_.append(piece, merges_, ids)) return;
  std::array<std::int32_t, few_symbols> few;
  if (piece.size() <= few_symbols) return merge_few({few.data(), symbols_of(piece, few.data())}, ids);
  std::vector<std::int32_t> symbols(piece.size());
  symbols.resize(symbols_of(piece, symbols.data()));
  symbols.size() <= few_symbols ? merge_few(symbols, ids) : merge_many(symbols, ids);
}

// Merges in place: each time the least rank of all pairs is searched, and what was merged away has none.
void BpeModel::merge_few(std::span<std::int32_t> id, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, few_symbols> rank, result;         // of the pair that starts here
  std::array<std::uint8_t, few_symbols + 1> previous, after;  // the neighbours that are left
  const std::size_t count = id.size();
  const auto look_up = [&](std::size_t left, std::size_t right) {
    const PairMerge merge = right < count ? merges_.find(id[left], id[right]) : PairMerge();
    rank[left] = merge.rank;
    result[left] = merge.result;
  };
  for (std::size_t i = 0; i < count; ++i) {
    previous[i] = static_cast<std::uint8_t>(i - 1);  // of the first one: beyond all
    after[i] = static_cast<std::uint8_t>(i + 1);
    look_up(i, i + 1);
  }
  for (;;) {
    std::int32_t least = no_rank;
    for (std::size_t i = 0; i < count; ++i) least = std::min(least, rank[i]);
    if (least == no_rank) break;
    const auto at = static_cast<std::size_t>(std::find(rank.begin(), rank.end(), least) - rank.begin());
    const std::size_t gone = after[at];
    id[at] = result[at];
    rank[gone] = no_rank;
    after[at] = after[gone];
    previous[after[at]] = static_cast<std::uint8_t>(at);
    look_up(at, after[at]);
    if (previous[at] < at) look_up(previous[at], at);
  }
  for (std::size_t i = 0; i < count; i = after[i]) ids.push_back(id[i]);
}

// A heap of candidates, the rank above the place: O(n log n) also for a piece of a megabyte.
void BpeModel::merge_many(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id, previous, next;
    PairMerge merge = {};  // of the pair that starts here
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  std::vector<Symbol> chain;
  std::vector<std::uint64_t> heap;
  const auto symbol = [&](std::int32_t i) -> Symbol& { return chain[static_cast<std::size_t>(i)]; };
  const auto propose = [&](std::int32_t left) {
    if (left < 0) return;
    Symbol& first = symbol(left);
    first.merge = first.next < count ? merges_.find(first.id, symbol(first.next).id) : PairMerge();
    if (!first.merge.exists()) return;
    heap.push_back(static_cast<std::uint64_t>(first.merge.rank) << 32 | static_cast<std::uint32_t>(left));
  };
  chain.reserve(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) chain.push_back({symbols[static_cast<std::size_t>(i)], i - 1, i + 1});
  for (std::int32_t i = 0; i < count; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto propose_later = [&](std::int32_t left) {
    const std::size_t before = heap.size();
    propose(left);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto at = static_cast<std::int32_t>(heap.front() & 0xffffffffu);
    const auto best = static_cast<std::int32_t>(heap.front() >> 32);
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    Symbol& left = symbol(at);
    if (left.merge.rank != best) continue;  // another pair by now
    Symbol& right = symbol(left.next);
    left.id = left.merge.result;
    left.next = right.next;
    right.merge = {};
    if (left.next < count) symbol(left.next).previous = at;
    propose_later(left.previous);
    propose_later(at);
  }
  for (std::int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace echelon
