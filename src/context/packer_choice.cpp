// What one rank takes: DocumentPacker::choose() and what it needs.
#include "context/document_packer.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace echelon {
namespace {

constexpr double tolerance = 0.005;  // of a rank's pairs, for the sake of whole documents
constexpr std::size_t most_tried = 64;

}  // namespace

void DocumentPacker::sum_bottom(std::int64_t num_tokens) {
  bottom_.assign(1, {});
  for (std::size_t i = low_; i < high_ && bottom_.back().tokens < num_tokens; ++i)
    bottom_.push_back({bottom_.back().tokens + pieces_[i].size(), bottom_.back().pairs + pairs_of(pieces_[i])});
}

std::size_t DocumentPacker::whole_in_bottom(std::int64_t num_tokens) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(bottom_, num_tokens, {}, &Sum::tokens) - bottom_.begin()) -
         1;
}

std::int64_t DocumentPacker::bottom_pairs(std::int64_t num_tokens, std::size_t num_whole) const {
  const Sum& whole = bottom_[num_whole];
  if (whole.tokens == num_tokens) return whole.pairs;
  Piece part = pieces_[low_ + num_whole];
  part.end = part.first + static_cast<std::int32_t>(num_tokens - whole.tokens);
  return whole.pairs + pairs_of(part);
}

DocumentPacker::Share DocumentPacker::choose(std::int64_t num_tokens, std::int64_t pairs) const {
  Share share;
  const Sum top = choose_top(num_tokens, pairs, share);
  share.bottom = num_tokens - top.tokens;
  if (share.bottom == 0 || high_ - share.num_top == low_) return share;
  choose_between(top, pairs, share);
  if (!share.between) choose_tail(top, pairs, share);
  return share;
}

DocumentPacker::Sum DocumentPacker::choose_top(std::int64_t num_tokens, std::int64_t pairs, Share& share) const {
  Sum top;
  std::size_t num_whole = bottom_.size() - 1;  // falls
  while (high_ - share.num_top > low_) {
    const Piece& piece = pieces_[high_ - share.num_top - 1];
    const Sum more = {top.tokens + piece.size(), top.pairs + pairs_of(piece)};
    if (more.tokens > num_tokens) break;
    while (bottom_[num_whole].tokens > num_tokens - more.tokens) --num_whole;
    if (more.pairs + bottom_pairs(num_tokens - more.tokens, num_whole) > pairs) break;
    top = more;
    ++share.num_top;
  }
  return top;
}

void DocumentPacker::choose_tail(const Sum& top, std::int64_t pairs, Share& share) const {
  const Piece& piece = pieces_[high_ - share.num_top - 1];
  std::int64_t fits = 0, exceeds = std::min(piece.size(), share.bottom) + 1;
  while (exceeds - fits > 1) {
    const std::int64_t tail = (fits + exceeds) / 2;
    Piece part = piece;
    part.first = part.end - static_cast<std::int32_t>(tail);
    const bool is_too_much = top.pairs + pairs_of(part) + bottom_pairs(share.bottom - tail) > pairs;
    (is_too_much ? exceeds : fits) = tail;
  }
  share.tail = fits;
  share.bottom -= fits;
}

/// Of the pieces with which the pairs are within the tolerance, that which leaves the smallest part at the bottom.
void DocumentPacker::choose_between(const Sum& top, std::int64_t pairs, Share& share) const {
  const auto excess = [&](std::size_t i) {
    return top.pairs + pairs_of(pieces_[i]) + bottom_pairs(share.bottom - pieces_[i].size()) - pairs;
  };
  const std::size_t next = high_ - share.num_top;
  std::size_t fits = low_, exceeds = next;
  while (exceeds - fits > 1) {
    const std::size_t i = (fits + exceeds) / 2;
    const bool is_too_much = pieces_[i].size() > share.bottom || excess(i) > 0;
    (is_too_much ? exceeds : fits) = i;
  }
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max(), bottom = 0;
  const std::size_t first = fits - std::min(fits - low_, most_tried);
  for (std::size_t i = first; i < std::min(next, fits + most_tried); ++i) {
    if (pieces_[i].size() > share.bottom) continue;
    const std::int64_t rest = share.bottom - pieces_[i].size();
    const std::size_t num_whole = whole_in_bottom(rest);
    const std::int64_t part = rest - bottom_[num_whole].tokens;
    if (low_ + num_whole + (part > 0 ? 1 : 0) > i || part >= smallest) continue;
    if (static_cast<double>(std::abs(excess(i))) > tolerance * static_cast<double>(pairs)) continue;
    smallest = part;
    share.between = i;
    bottom = rest;
  }
  if (share.between) share.bottom = bottom;
}

}  // namespace echelon
