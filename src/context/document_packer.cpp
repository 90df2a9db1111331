#include "context/document_packer.h"

#include "context/documents.h"

#include <algorithm>

namespace echelon {

void DocumentPacker::append_runs(std::span<const std::int32_t> documents, int cp, std::int64_t window,
                                 std::vector<TokenRun>& runs) {
  documents_ = documents;
  window_ = window;
  const std::int64_t T = documents.back();
  sort_pieces();
  for (int rank = cp - 1; rank >= 0; --rank) {
    const std::int64_t num_tokens = T / cp + (rank < T % cp ? 1 : 0);
    sum_bottom(num_tokens);
    take(choose(num_tokens, pairs_left_ / (rank + 1)), rank);
  }
  write_runs(runs);
}

/// Stable, so that the lists are the same everywhere. Where documents are many, a counting sort, which is linear.
void DocumentPacker::sort_pieces() {
  const std::size_t num_documents = documents_.size() - 1;
  pieces_.resize(num_documents);
  std::int32_t longest = 0;
  pairs_left_ = 0;
  for (std::size_t d = 0; d < num_documents; ++d) {
    const std::int32_t length = documents_[d + 1] - documents_[d];
    longest = std::max(longest, length);
    pieces_[d] = {static_cast<std::int32_t>(d), 0, length};
    pairs_left_ += num_document_pairs(length, window_);
  }
  constexpr std::size_t few = 64;
  if (num_documents < few)
    std::ranges::stable_sort(pieces_, {}, &Piece::size);
  else
    count_and_sort(longest);
  const auto first = std::ranges::find_if(pieces_, [](const Piece& piece) { return piece.size() > 0; });
  low_ = static_cast<std::size_t>(first - pieces_.begin());  // empty documents have no rank
  high_ = num_documents;
  ranks_.assign(high_, 0);
  parts_.clear();
}

void DocumentPacker::count_and_sort(std::int32_t longest) {
  starts_by_length_.assign(static_cast<std::size_t>(longest) + 2, 0);
  for (const Piece& piece : pieces_) ++starts_by_length_[static_cast<std::size_t>(piece.size()) + 1];
  for (std::size_t i = 1; i < starts_by_length_.size(); ++i) starts_by_length_[i] += starts_by_length_[i - 1];
  sorted_.resize(pieces_.size());
  for (const Piece& piece : pieces_)
    sorted_[static_cast<std::size_t>(starts_by_length_[static_cast<std::size_t>(piece.size())]++)] = piece;
  std::swap(pieces_, sorted_);
}

void DocumentPacker::take(const Share& share, int rank) {
  for (std::size_t i = 0; i < share.num_top; ++i) give(pieces_[--high_], rank);
  if (share.between) {
    give(pieces_[*share.between], rank);
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(*share.between));
    --high_;
  }
  Piece rest;
  if (share.tail > 0) {
    Piece tail = rest = pieces_[--high_];
    tail.first = rest.end -= static_cast<std::int32_t>(share.tail);
    give(tail, rank);
  }
  take_bottom(share.bottom, rest, rank);
  if (rest.size() > 0) put_back(rest, high_);
}

void DocumentPacker::take_bottom(std::int64_t num_tokens, Piece& rest_of_top, int rank) {
  while (num_tokens > 0 && low_ < high_ && pieces_[low_].size() <= num_tokens) {
    num_tokens -= pieces_[low_].size();
    give(pieces_[low_++], rank);
  }
  if (num_tokens == 0) return;
  const bool is_top = low_ == high_;
  Piece rest = is_top ? rest_of_top : pieces_[low_++], part = rest;
  part.end = rest.first += static_cast<std::int32_t>(num_tokens);
  give(part, rank);
  if (is_top)
    rest_of_top = rest;
  else
    put_back(rest, low_ - 1);
}

/// Where the order of the pieces wants it. `free_place`, next to them, becomes theirs.
void DocumentPacker::put_back(const Piece& piece, std::size_t free_place) {
  const auto low = pieces_.begin() + static_cast<std::ptrdiff_t>(low_);
  const auto high = pieces_.begin() + static_cast<std::ptrdiff_t>(high_);
  const auto place =
      std::upper_bound(low, high, piece, [this](const Piece& a, const Piece& b) { return density(a) < density(b); });
  if (free_place == high_) {
    std::move_backward(place, high, high + 1);
    *place = piece;
    ++high_;
  } else {
    *std::move(low, place, low - 1) = piece;
    --low_;
  }
}

void DocumentPacker::give(const Piece& piece, int rank) {
  pairs_left_ -= pairs_of(piece);
  const auto d = static_cast<std::size_t>(piece.document);
  const std::int32_t start = documents_[d];
  const bool is_whole = piece.size() == documents_[d + 1] - start;
  ranks_[d] = is_whole ? rank : -1;
  if (!is_whole) parts_.push_back({start + piece.first, start + piece.end, rank});
}

std::int64_t DocumentPacker::pairs_of(const Piece& piece) const {
  return num_document_pairs(piece.end, window_) - num_document_pairs(piece.first, window_);
}

double DocumentPacker::density(const Piece& piece) const {
  return static_cast<double>(pairs_of(piece)) / static_cast<double>(piece.size());
}

void DocumentPacker::write_runs(std::vector<TokenRun>& runs) {
  std::ranges::sort(parts_, {}, &TokenRun::first);
  auto part = parts_.begin();
  for (std::size_t d = 0; d + 1 < documents_.size(); ++d) {
    if (ranks_[d] >= 0)
      runs.push_back({documents_[d], documents_[d + 1], ranks_[d]});
    else
      while (part != parts_.end() && part->first < documents_[d + 1]) runs.push_back(*part++);
  }
}

}  // namespace echelon
