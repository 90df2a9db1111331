#include "pages/context_parallel/context_words.h"

#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::size_t most_documents = 12;  // columns of the table of tokens

/// A row of the picture: the letter of the document where the rank holds a token, else a dot.
std::string held_by(const ContextPicture& picture, int rank, std::int64_t per_column) {
  std::string row(static_cast<std::size_t>((picture.split.seq_len + per_column - 1) / per_column), '.');
  for (const std::int32_t position : picture.lists.positions(rank)) {
    char& cell = row[static_cast<std::size_t>(position / per_column)];
    if (cell == '.') cell = ContextPicture::letter_of(picture.document_of(position));
  }
  return row;
}

std::string held(const ContextPicture& picture, int max_columns) {
  const std::int64_t per_column = (picture.split.seq_len + max_columns - 1) / max_columns;
  const std::size_t num_documents = picture.documents.size() - 1, shown = std::min(num_documents, most_documents);
  std::string text = fmt::format("who holds which tokens{}, and how many of each document\n{:<8}  {:<{}}",
                                 per_column > 1 ? fmt::format(" (a column: {} tokens)", per_column) : "", "", "",
                                 (picture.split.seq_len + per_column - 1) / per_column);
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format(" {:>6}", ContextPicture::letter_of(i));
  text += shown < num_documents ? "    ...\n" : "\n";
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    text += fmt::format("rank {:<3}  {}", rank, held_by(picture, rank, per_column));
    for (std::size_t i = 0; i < shown; ++i)
      text += fmt::format(" {:>6}", picture.document_tokens[static_cast<std::size_t>(rank)][i]);
    text += "\n";
  }
  return text;
}

std::string exchanged(const ContextPicture& picture) {
  if (!picture.exchanges_heads()) return {};
  const ExchangedRows rows = exchanged_rows(picture);
  std::string text = fmt::format(
      "\nheads after the exchange, and rows of a head that a rank sends to each other rank of its group\n"
      "{:<10}{:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      "", "group", "heads", "kv heads", "q", "k", "v", "out");
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    const HeadSplit heads = picture.heads_of(rank);
    text += fmt::format("rank {:<5}{:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", rank,
                        picture.name_of_place(picture.place_of(rank)), range_text(heads.first_head, heads.num_heads),
                        range_text(heads.first_kv_head, heads.num_kv_heads), rows.queries, rows.keys, rows.values,
                        rows.results);
  }
  return text;
}

std::string sent(const ContextPicture& picture) {
  const int n = picture.num_places();
  if (n == 1 && picture.exchanges_heads()) return {};
  std::string text = "\n" + sent_text(picture) + "\n";
  for (int place = 0; place < n; ++place) {
    text += fmt::format("to {:<8}", picture.name_of_place(place));
    for (int distance = 1; distance < n; ++distance)
      text += fmt::format("  {}of {}, {} seen", picture.is_gathered() ? "" : fmt::format("hop {}: ", distance),
                          picture.name_of_place(picture.source_of(place, distance)),
                          picture.seen_rows[static_cast<std::size_t>(place)][static_cast<std::size_t>(distance)]);
    text += "\n";
  }
  return text;
}

/// Columns: hops, or the ranks whose keys are gathered; one place has none.
std::string computed(const ContextPicture& picture) {
  const int n = picture.num_places(), columns = n == 1 && picture.exchanges_heads() ? 0 : n;
  std::string text = "\n" + pairs_text(picture) + "\n          ";
  for (int i = 0; i < columns; ++i)
    text += fmt::format(" {:>9}", fmt::format("{} {}", picture.is_gathered() ? "rank" : "hop", i));
  text += fmt::format(" {:>10} {:>7}\n", "all", "waits");
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    text += fmt::format("rank {:<5}", rank);
    const int place = picture.place_of(rank);
    for (int i = 0; i < columns; ++i) {
      const int distance = picture.is_gathered() ? picture.source_of(place, i) : i;  // its own inverse
      text += fmt::format(" {:>9}", picture.pairs[static_cast<std::size_t>(place)][static_cast<std::size_t>(distance)]);
    }
    text += fmt::format(" {:>10} {:>6.1f}%\n", picture.num_pairs(rank), 100 * picture.waiting(rank));
  }
  return text;
}

}  // namespace

std::string to_text(const ContextPicture& picture, int max_columns) {
  return fmt::format("{}: {} in {} on {}\n\n", name_of(picture.split.balancer), counted(picture.split.seq_len, "token"),
                     counted(picture.documents.size() - 1, "document"), ranks_text(picture)) +
         held(picture, max_columns) + exchanged(picture) + sent(picture) + computed(picture) +
         fmt::format(
             "\nlargest rank over the mean: {:.3f} (contiguous chunks: {:.3f}); in lock step {:.1f}% of the "
             "ranks' time is attention\n",
             picture.imbalance, picture.contiguous_imbalance, 100 * picture.lock_step_efficiency());
}

}  // namespace echelon
