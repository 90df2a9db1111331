// The token lists of `packed`: short documents whole on one rank, long ones split, so that every rank has equally many
// tokens and pairs (query, key), and few keys travel.
//
// A rank needs the keys of a document up to its last query there. So a document costs least if it is split into few
// contiguous pieces. Tokens at the end of long documents have many pairs each, short documents have few: each rank gets
// both. One rank after another is filled, the last one first, so that the keys of a long document travel to the next
// ranks of a ring and are dropped there:
//   from the top:     the longest documents, the last of them only in part: its tail;
//   from the bottom:  the shortest documents, the last of them only in part,
// such that its tokens are exact and its pairs are the mean of what is left. Top and bottom are in order of density,
// pairs per token: all from the bottom gives at most the mean, all from the top at least, so a bisection finds the
// share of the top. What is left of a document is a piece like the others. If one document is left, this gives head and
// tail. Whole documents are preferred where the tolerance of the pairs allows it.
#pragma once

#include "context/token_run.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace echelon {

class DocumentPacker {
 public:
  /// Appends the runs of all positions, ascending. Rank r gets T / cp tokens, and one more for r < T mod cp.
  /// `documents`: DocumentOffsets of T tokens; `window` as in Visibility. Linear time in tokens; memory is reused.
  void append_runs(std::span<const std::int32_t> documents, int cp, std::int64_t window, std::vector<TokenRun>& runs);

 private:
  /// Tokens [first, end) of a document, counted from its start.
  struct Piece {
    std::int32_t document = 0, first = 0, end = 0;
    [[nodiscard]] std::int64_t size() const { return end - first; }
  };
  /// What one rank takes of the pieces [low_, high_).
  struct Share {
    std::size_t num_top = 0;             // whole pieces from the top
    std::int64_t tail = 0;               // tokens of the next piece from the top
    std::optional<std::size_t> between;  // in place of the tail a whole piece that is neither at the top nor the bottom
    std::int64_t bottom = 0;             // tokens from the bottom
  };
  /// Tokens and pairs of whole pieces.
  struct Sum {
    std::int64_t tokens = 0, pairs = 0;
  };

  void sort_pieces();
  void count_and_sort(std::int32_t longest);
  void sum_bottom(std::int64_t num_tokens);
  [[nodiscard]] Share choose(std::int64_t num_tokens, std::int64_t pairs) const;
  [[nodiscard]] Sum choose_top(std::int64_t num_tokens, std::int64_t pairs, Share& share) const;
  void choose_tail(const Sum& top, std::int64_t pairs, Share& share) const;
  void choose_between(const Sum& top, std::int64_t pairs, Share& share) const;
  [[nodiscard]] std::size_t whole_in_bottom(std::int64_t num_tokens) const;
  [[nodiscard]] std::int64_t bottom_pairs(std::int64_t num_tokens, std::size_t num_whole) const;
  [[nodiscard]] std::int64_t bottom_pairs(std::int64_t num_tokens) const {
    return bottom_pairs(num_tokens, whole_in_bottom(num_tokens));
  }

  void take(const Share& share, int rank);
  void take_bottom(std::int64_t num_tokens, Piece& rest_of_top, int rank);
  void put_back(const Piece& piece, std::size_t free_place);
  void give(const Piece& piece, int rank);
  [[nodiscard]] std::int64_t pairs_of(const Piece& piece) const;
  [[nodiscard]] double density(const Piece& piece) const;
  void write_runs(std::vector<TokenRun>& runs);

  std::span<const std::int32_t> documents_;  // while append_runs() runs
  std::int64_t window_ = 0;
  std::int64_t pairs_left_ = 0;
  std::vector<Piece> pieces_;  // those of [low_, high_) have no rank yet, by rising density
  std::size_t low_ = 0, high_ = 0;
  std::vector<Sum> bottom_;          // of 0, 1, ... pieces from low_
  std::vector<std::int32_t> ranks_;  // of each document; -1 if it is split
  std::vector<TokenRun> parts_;      // of split documents: positions
  std::vector<Piece> sorted_;        // while sort_pieces() runs, as the next one
  std::vector<std::int32_t> starts_by_length_;
};

}  // namespace echelon
