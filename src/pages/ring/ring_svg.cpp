#include "pages/ring/ring_picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr double left = 70, width = 900, row_height = 20, row_pitch = 26, top = 50;

/// Neighbouring documents and hops differ.
constexpr const char* colors[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2"};

struct SvgBar {
  double x = 0, y = 0, width = 0;
  std::size_t color = 0;
  std::string title;  // shown under the pointer
};

std::string drawn(const SvgBar& bar) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" stroke=\"white\" "
      "stroke-width=\"0.3\"><title>{}</title></rect>\n",
      bar.x, bar.y, bar.width, row_height, colors[bar.color % std::size(colors)], bar.title);
}

std::string label(double x, double y, const std::string& text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", x, y, text);
}

/// The runs of positions of one document that a rank holds.
std::string held_tokens(const RingPicture& picture, int rank, double y) {
  const double scale = width / static_cast<double>(picture.split.seq_len);
  const auto positions = picture.lists.positions(rank);
  std::string svg;
  for (std::size_t first = 0; first < positions.size();) {
    const std::size_t document = picture.document_of(positions[first]);
    std::size_t end = first + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1 &&
           picture.document_of(positions[end]) == document)
      ++end;
    svg += drawn({left + scale * positions[first], y, scale * static_cast<double>(end - first), document,
                  fmt::format("document {}, tokens {} to {}", document, positions[first], positions[end - 1])});
    first = end;
  }
  return svg;
}

/// Attention at each hop in lock step; blanks are waits.
std::string hops(const RingPicture& picture, int rank, double y) {
  std::int64_t all = 0;
  for (int hop = 0; hop < picture.split.cp; ++hop) all += picture.longest(hop);
  const double scale = all == 0 ? 0 : width / static_cast<double>(all);
  std::string svg;
  double x = left;
  for (int hop = 0; hop < picture.split.cp; ++hop) {
    const std::int64_t pairs = picture.pairs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(hop)];
    const int source = (rank - hop + picture.split.cp) % picture.split.cp;
    svg += drawn({x, y, scale * static_cast<double>(pairs), static_cast<std::size_t>(source),
                  fmt::format("hop {}: keys of rank {}, {} pairs, {} of {} rows sent here are seen", hop, source, pairs,
                              picture.seen_rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(hop)],
                              hop == 0 ? 0 : picture.lists.rows())});
    x += scale * static_cast<double>(picture.longest(hop));
  }
  return svg;
}

}  // namespace

std::string to_svg(const RingPicture& picture) {
  const int cp = picture.split.cp;
  const double panel = row_pitch * cp, second = top + panel + 40;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      left + width + 20, second + panel + 20);
  svg += label(8, 20,
               fmt::format("{}: {} tokens on {} ranks; largest rank over the mean {:.3f}, of contiguous chunks {:.3f}",
                           name_of(picture.split.balancer), picture.split.seq_len, cp, picture.imbalance,
                           picture.contiguous_imbalance));
  svg += label(left, top - 8, "tokens, by document");
  svg += label(left, second - 8,
               fmt::format("attention in lock step, hop by hop, by the rank whose keys it reads: {:.1f}% of the time",
                           100 * picture.lock_step_efficiency()));
  for (int rank = 0; rank < cp; ++rank)
    for (const double y : {top + row_pitch * rank, second + row_pitch * rank}) {
      svg += label(8, y + 14, fmt::format("rank {}", rank));
      svg += y < second ? held_tokens(picture, rank, y) : hops(picture, rank, y);
    }
  return svg + "</svg>\n";
}

HtmlReport ring_page(const RingPicture& picture) {
  const int cp = picture.split.cp;
  HtmlReport page;
  page.title = fmt::format("{}, {} tokens on {} ranks", name_of(picture.split.balancer), picture.split.seq_len, cp);
  page.summary = "Which rank of a ring holds which tokens, what is sent at each hop, and what attention computes.";
  page.tiles = {{"Balance", fmt::format("{:.3f}", picture.imbalance), "largest rank over the mean"},
                {"Before", fmt::format("{:.3f}", picture.contiguous_imbalance), "contiguous chunks"},
                {"Lock step", text_of(HtmlUnit::fraction, picture.lock_step_efficiency()), "of the time is attention"}};
  HtmlBars tokens = {.title = "Tokens by document", .unit = HtmlUnit::number},
           pairs = {.title = "Pairs (query, key) at each hop",
                    .note = "Of one head. In lock step every hop takes as long as its slowest rank.",
                    .unit = HtmlUnit::number};
  HtmlTable sent = {
      .title = "What is sent",
      .note = fmt::format("Rows of keys and values that are seen, of {} in a block.", picture.lists.rows()),
      .columns = {{"to"}}};
  for (int hop = 1; hop < cp; ++hop) sent.columns.push_back({fmt::format("hop {}", hop), true});
  for (int rank = 0; rank < cp; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::string name = fmt::format("rank {}", rank);
    HtmlBars::Row &of_tokens = tokens.rows.emplace_back(HtmlBars::Row{.label = name}),
                  &of_pairs = pairs.rows.emplace_back(HtmlBars::Row{.label = name});
    HtmlTable::Row& of_sent = sent.rows.emplace_back(HtmlTable::Row{.cells = {name}});
    for (std::size_t i = 0; i < picture.document_tokens[r].size(); ++i)
      of_tokens.segments.push_back({fmt::format("document {}", i), static_cast<double>(picture.document_tokens[r][i])});
    for (std::size_t hop = 0; hop < picture.pairs[r].size(); ++hop) {
      of_pairs.segments.push_back({fmt::format("hop {}", hop), static_cast<double>(picture.pairs[r][hop])});
      if (hop > 0) of_sent.cells.push_back(std::to_string(picture.seen_rows[r][hop]));
    }
  }
  page.bars = {std::move(tokens), std::move(pairs)};
  page.tables = {std::move(sent)};
  return page;
}

}  // namespace echelon
