#include "data/tokenizer/tokenizer.h"

#include "data/tokenizer/nfc.h"

#include <xxhash.h>

namespace echelon {
namespace {

constexpr std::size_t longest_known_piece = 64;
constexpr std::size_t most_known_pieces = 1 << 18;

}  // namespace

std::size_t Encoder::Hash::operator()(std::string_view bytes) const { return XXH3_64bits(bytes.data(), bytes.size()); }

void Encoder::append(std::string_view text, std::vector<std::int32_t>& ids) {
  const auto added_at = [&](std::size_t at) -> const AddedToken* {
    for (const AddedToken* added : tokenizer_.longest_added_first_) {
      if (text.substr(at).starts_with(added->content)) return added;
    }
    return nullptr;
  };
  const std::string& first_bytes = tokenizer_.first_bytes_of_added_;
  std::size_t done = 0;
  for (std::size_t at = text.find_first_of(first_bytes); at != std::string_view::npos;) {
    const AddedToken* added = added_at(at);
    if (added != nullptr) {
      append_plain(text.substr(done, at - done), ids);
      ids.push_back(added->id);
      done = at + added->content.size();
    }
    at = text.find_first_of(first_bytes, added != nullptr ? done : at + 1);
  }
  append_plain(text.substr(done), ids);
}

void Encoder::append_plain(std::string_view text, std::vector<std::int32_t>& ids) {
  std::string normalized;
  if (tokenizer_.spec_.normalization == Normalization::nfc) text = to_nfc(text, normalized);
  tokenizer_.splitter_.split(text, [&](std::string_view piece) { append_piece(piece, ids); });
}

void Encoder::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.size() == 1) return ids.push_back(tokenizer_.byte_ids_[static_cast<std::uint8_t>(piece[0])]);
  const auto found = piece.size() <= longest_known_piece ? known_.find(piece) : known_.end();
  if (found != known_.end()) {
    const auto first = known_ids_.begin() + found->second.first;
    ids.insert(ids.end(), first, first + found->second.count);
    return;
  }
  const std::size_t before = ids.size();
  const auto whole =
      tokenizer_.spec_.prefers_whole_pieces ? tokenizer_.whole_pieces_.find(piece) : tokenizer_.whole_pieces_.end();
  if (whole != tokenizer_.whole_pieces_.end()) {
    ids.push_back(whole->second);
  } else {
    tokenizer_.append_merged(piece, ids);
  }
  if (piece.size() > longest_known_piece) return;
  if (known_.size() == most_known_pieces) {
    known_.clear();
    known_ids_.clear();
  }
  known_.emplace(piece,
                 Known{static_cast<std::uint32_t>(known_ids_.size()), static_cast<std::uint32_t>(ids.size() - before)});
  known_ids_.insert(known_ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

}  // namespace echelon
