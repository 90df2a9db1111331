// What a ring of context parallelism does with one sequence: which rank holds which tokens, what is sent at each hop,
// and how even the pairs (query, key) are. As text, SVG and HTML.
//
// In lock step, every hop takes as long as the rank with the most pairs; the others wait.
#pragma once

#include "context/documents.h"
#include "context/token_lists.h"
#include "report/html/html_report.h"

#include <string>
#include <vector>

namespace echelon {

struct RingPicture {
  TokenSplit split;
  DocumentOffsets documents;
  TokenLists lists;
  /// Of one head, by rank and hop. At hop d a rank has the block of the rank d places before it.
  std::vector<std::vector<std::int64_t>> pairs;
  /// Rows of the block that arrives at a rank for a hop that it or a later rank sees, by rank and hop; 0 at hop 0.
  std::vector<std::vector<std::int64_t>> seen_rows;
  std::vector<std::vector<std::int64_t>> document_tokens;  // by rank and document
  double imbalance = 1, contiguous_imbalance = 1;          // largest rank over the mean; and of cp contiguous chunks

  [[nodiscard]] std::int64_t num_pairs(int rank) const;
  [[nodiscard]] std::int64_t longest(int hop) const;  // pairs of the slowest rank
  /// Pairs over those that the ranks could compute in lock step; of one rank alone its share of the time.
  [[nodiscard]] double lock_step_efficiency() const;
  [[nodiscard]] double waiting(int rank) const;
  /// 'A', 'B', ... of a document; after 'z' again 'A'.
  [[nodiscard]] static char letter_of(std::size_t document);
  [[nodiscard]] std::size_t document_of(std::int32_t position) const;
};

/// Throws Error on a split that TokenLists refuses.
[[nodiscard]] RingPicture ring_picture(const TokenSplit& split, const DocumentOffsets& documents);

/// At most `max_columns` for the tokens: a column may stand for several.
[[nodiscard]] std::string to_text(const RingPicture& picture, int max_columns);
[[nodiscard]] std::string to_svg(const RingPicture& picture);
[[nodiscard]] HtmlReport ring_page(const RingPicture& picture);

}  // namespace echelon
