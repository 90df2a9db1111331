#include "pages/ring/ring_picture.h"

#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::size_t most_documents = 12;  // columns of the table of tokens

/// A row of the picture: the letter of the document where the rank holds a token, else a dot.
std::string held_by(const RingPicture& picture, int rank, std::int64_t per_column) {
  std::string row(static_cast<std::size_t>((picture.split.seq_len + per_column - 1) / per_column), '.');
  for (const std::int32_t position : picture.lists.positions(rank)) {
    char& cell = row[static_cast<std::size_t>(position / per_column)];
    if (cell == '.') cell = RingPicture::letter_of(picture.document_of(position));
  }
  return row;
}

std::string held(const RingPicture& picture, int max_columns) {
  const std::int64_t per_column = (picture.split.seq_len + max_columns - 1) / max_columns;
  const std::size_t num_documents = picture.documents.size() - 1, shown = std::min(num_documents, most_documents);
  std::string text = fmt::format("who holds which tokens{}, and how many of each document\n{:<8}  {:<{}}",
                                 per_column > 1 ? fmt::format(" (a column: {} tokens)", per_column) : "", "", "",
                                 (picture.split.seq_len + per_column - 1) / per_column);
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format(" {:>6}", RingPicture::letter_of(i));
  text += shown < num_documents ? "    ...\n" : "\n";
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    text += fmt::format("rank {:<3}  {}", rank, held_by(picture, rank, per_column));
    for (std::size_t i = 0; i < shown; ++i)
      text += fmt::format(" {:>6}", picture.document_tokens[static_cast<std::size_t>(rank)][i]);
    text += "\n";
  }
  return text;
}

std::string sent(const RingPicture& picture) {
  const int cp = picture.split.cp;
  std::string text = fmt::format(
      "\nwhat is sent for each hop: {} rows of a rank's keys and values, of which so many are seen there or later\n",
      picture.lists.rows());
  for (int rank = 0; rank < cp; ++rank) {
    text += fmt::format("to rank {:<3}", rank);
    for (int hop = 1; hop < cp; ++hop)
      text += fmt::format("  hop {}: of rank {}, {} seen", hop, (rank - hop + cp) % cp,
                          picture.seen_rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(hop)]);
    text += "\n";
  }
  return text;
}

std::string computed(const RingPicture& picture) {
  std::string text = "\npairs (query, key) of a head at each hop; a hop ends with its slowest rank\n          ";
  for (int hop = 0; hop < picture.split.cp; ++hop) text += fmt::format(" {:>9}", fmt::format("hop {}", hop));
  text += fmt::format(" {:>10} {:>7}\n", "all", "waits");
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    text += fmt::format("rank {:<5}", rank);
    for (const std::int64_t pairs : picture.pairs[static_cast<std::size_t>(rank)]) text += fmt::format(" {:>9}", pairs);
    text += fmt::format(" {:>10} {:>6.1f}%\n", picture.num_pairs(rank), 100 * picture.waiting(rank));
  }
  return text;
}

}  // namespace

std::string to_text(const RingPicture& picture, int max_columns) {
  return fmt::format("{}: {} in {} on {} of a ring\n\n", name_of(picture.split.balancer),
                     counted(picture.split.seq_len, "token"), counted(picture.documents.size() - 1, "document"),
                     counted(picture.split.cp, "rank")) +
         held(picture, max_columns) + sent(picture) + computed(picture) +
         fmt::format(
             "\nlargest rank over the mean: {:.3f} (contiguous chunks: {:.3f}); in lock step {:.1f}% of the "
             "ranks' time is attention\n",
             picture.imbalance, picture.contiguous_imbalance, 100 * picture.lock_step_efficiency());
}

}  // namespace echelon
