// What context parallelism does with one sequence, forward: which rank holds which tokens, what is sent, and how even
// the pairs (query, key) are. As text, SVG and HTML.
//
// Legend: a place is a rank, or u ranks that exchange heads and have the same queries after it. Distance d: the keys of
// the place d places before, which a ring has at hop d.
//
// In lock step, every hop takes as long as the place with the most pairs; the others wait. Where keys are gathered, a
// kv head is such a step.
#pragma once

#include "blueprint/blueprint.h"
#include "context/documents.h"
#include "context/key_blocks.h"
#include "context/token_lists.h"
#include "nn/head_split.h"
#include "report/html/html_report.h"

#include <string>
#include <vector>

namespace echelon {

struct ContextPicture {
  static constexpr std::int64_t most_hop_tokens = 1 << 29;  // ranks x tokens: seconds

  TokenSplit split;
  KeyExchange exchange;
  HeadSplit heads;  // of a tensor-parallel rank, before they are exchanged
  DocumentOffsets documents;
  TokenLists lists;
  std::int64_t block_rows = 0;  // of the keys of a place, padding included
  /// Of one head, by place and distance.
  std::vector<std::vector<std::int64_t>> pairs;
  /// Rows of keys that arrive at a place and that it sees, or in a ring a later place too, by place and distance.
  std::vector<std::vector<std::int64_t>> seen_rows;
  std::vector<std::vector<std::int64_t>> document_tokens;  // by rank and document
  std::vector<std::int64_t> longest;                       // of each step in lock step: pairs of the slowest place
  double imbalance = 1, contiguous_imbalance = 1;          // largest rank over the mean; and of cp contiguous chunks

  [[nodiscard]] bool is_gathered() const { return exchange.method == ContextMethod::all_gather; }
  [[nodiscard]] bool exchanges_heads() const { return exchange.head_ranks > 1; }
  [[nodiscard]] int num_places() const { return split.cp / exchange.head_ranks; }
  [[nodiscard]] int place_of(int rank) const { return rank / exchange.head_ranks; }
  /// The place `distance` before, of which `place` reads keys.
  [[nodiscard]] int source_of(int place, int distance) const {
    return (place - distance + num_places()) % num_places();
  }
  /// "rank 3", "ranks 2-3"
  [[nodiscard]] std::string name_of_place(int place) const;
  /// With which a rank attends.
  [[nodiscard]] HeadSplit heads_of(int rank) const;

  [[nodiscard]] int num_steps() const { return static_cast<int>(longest.size()); }
  [[nodiscard]] std::int64_t pairs_of_step(int place, int step) const;
  [[nodiscard]] std::int64_t num_pairs(int rank) const;  // of one head
  /// Pairs over those that the ranks could compute in lock step; of one rank alone its share of the time.
  [[nodiscard]] double lock_step_efficiency() const;
  [[nodiscard]] double waiting(int rank) const;
  /// 'A', 'B', ... of a document; after 'z' again 'A'.
  [[nodiscard]] static char letter_of(std::size_t document);
  [[nodiscard]] std::size_t document_of(std::int32_t position) const;
};

/// Rows of one head that a rank sends to each other rank of its place where heads are exchanged.
struct ExchangedRows {
  std::int64_t queries = 0, keys = 0, values = 0;  // before attention
  std::int64_t results = 0;                        // after it
};
[[nodiscard]] ExchangedRows exchanged_rows(const ContextPicture& picture);

/// Throws Error on a split that TokenLists refuses. `heads` must have passed validate_head_exchange.
[[nodiscard]] ContextPicture context_picture(const TokenSplit& split, const DocumentOffsets& documents,
                                             const KeyExchange& exchange, const HeadSplit& heads);
/// That of a run with several ranks of context parallelism.
[[nodiscard]] ContextPicture context_picture(const Blueprint& blueprint, const DocumentOffsets& documents);

/// Of `num_heads` query and `num_kv_heads` kv heads on one tensor-parallel rank. Throws Error naming the option of
/// `echelon draw`, unless cp ranks can divide them by this method.
[[nodiscard]] HeadSplit drawn_heads(std::int64_t num_heads, std::int64_t num_kv_heads, int cp,
                                    const KeyExchange& exchange);

/// At most `max_columns` for the tokens: a column may stand for several.
[[nodiscard]] std::string to_text(const ContextPicture& picture, int max_columns);
[[nodiscard]] std::string to_svg(const ContextPicture& picture);
[[nodiscard]] HtmlReport context_page(const ContextPicture& picture);
/// Of a run's page; without documents it is drawn as one.
struct DrawnSequence {
  DocumentOffsets documents = {};
  std::string note = "Of a sequence that is one document.";
};
/// The same bars and tables on the page of a run with context parallelism.
void add_context_section(HtmlReport& page, const Blueprint& blueprint, const DrawnSequence& sequence);

}  // namespace echelon
