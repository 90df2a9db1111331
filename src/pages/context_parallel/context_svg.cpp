#include "pages/context_parallel/context_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr double left = 70, width = 900, row_height = 20, row_pitch = 26, top = 50, panel_gap = 40;

/// Neighbouring documents, hops and heads differ.
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

/// The first of the texts that fits on `width`, on a bar and the blank after it.
std::string label_within(double x, double y, double width, const std::vector<std::string>& texts) {
  constexpr double letter_width = 6.5, margin = 3;  // of the widest digits and small letters
  for (const std::string& text : texts)
    if (letter_width * static_cast<double>(text.size()) + 2 * margin <= width) return label(x + margin, y + 14, text);
  return {};
}

/// The runs of positions of one document that a rank holds.
std::string held_tokens(const ContextPicture& picture, int rank, double y) {
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

/// The query heads of a rank once they are exchanged, in the color of their kv head.
std::string held_heads(const ContextPicture& picture, int rank, double y) {
  const HeadSplit heads = picture.heads_of(rank);
  const ExchangedRows rows = exchanged_rows(picture);
  const double scale = width / static_cast<double>(picture.heads.num_heads);
  return drawn(
      {left + scale * static_cast<double>(heads.first_head), y, scale * static_cast<double>(heads.num_heads),
       static_cast<std::size_t>(heads.first_kv_head),
       fmt::format(
           "heads {}, kv heads {}: to each other rank of {} go {} rows of a head of q, {} of k, {} of v, {} of out",
           range_text(heads.first_head, heads.num_heads), range_text(heads.first_kv_head, heads.num_kv_heads),
           picture.name_of_place(picture.place_of(rank)), rows.queries, rows.keys, rows.values, rows.results)});
}

std::vector<std::string> rows_texts(std::int64_t seen, std::int64_t sent) {
  return {fmt::format("{} of {} rows", seen, sent), fmt::format("{}/{}", seen, sent), std::to_string(seen)};
}

/// Attention at each hop in lock step; blanks are waits.
std::string hops(const ContextPicture& picture, int rank, double y) {
  const std::int64_t all = std::accumulate(picture.longest.begin(), picture.longest.end(), std::int64_t{0});
  const double scale = all == 0 ? 0 : width / static_cast<double>(all);
  const int place = picture.place_of(rank);
  std::string svg;
  double x = left;
  for (int hop = 0; hop < picture.num_steps(); ++hop) {
    const std::int64_t pairs = picture.pairs_of_step(place, hop);
    const int source = picture.source_of(place, hop);
    const std::int64_t seen = picture.seen_rows[static_cast<std::size_t>(place)][static_cast<std::size_t>(hop)],
                       sent = hop == 0 ? 0 : picture.block_rows;
    const double step = scale * static_cast<double>(picture.longest[static_cast<std::size_t>(hop)]);
    svg += drawn({x, y, scale * static_cast<double>(pairs), static_cast<std::size_t>(source),
                  fmt::format("hop {}: keys of {}, {} pairs, {} of {} rows sent here are seen", hop,
                              picture.name_of_place(source), pairs, seen, sent)});
    if (hop > 0) svg += label_within(x, y, step, rows_texts(seen, sent));
    x += step;
  }
  return svg;
}

/// Attention to gathered keys, a kv head after the other.
std::string gathered_heads(const ContextPicture& picture, int rank, double y) {
  const auto n = static_cast<std::int64_t>(picture.num_places());
  const std::vector<std::int64_t>& of_rank = picture.seen_rows[static_cast<std::size_t>(rank)];
  const std::int64_t seen = std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0}),
                     pairs = picture.num_pairs(rank), num_kv_heads = picture.heads.num_kv_heads;
  const double step = width / static_cast<double>(num_kv_heads), longest = static_cast<double>(picture.longest[0]);
  const std::int64_t gathered = (n - 1) * picture.block_rows;
  std::string svg;
  for (std::int64_t head = 0; head < num_kv_heads; ++head) {
    svg += drawn({left + step * static_cast<double>(head), y,
                  longest == 0 ? 0 : step * static_cast<double>(pairs) / longest, static_cast<std::size_t>(head),
                  fmt::format("kv head {}: {} pairs of each of its query heads, {} of {} rows gathered are seen", head,
                              pairs, seen, gathered)});
    svg += label_within(left + step * static_cast<double>(head), y, step, rows_texts(seen, gathered));
  }
  return svg;
}

struct SvgPanel {
  std::string title;
  std::string (*row)(const ContextPicture& picture, int rank, double y);
};

std::vector<SvgPanel> panels_of(const ContextPicture& picture) {
  std::vector<SvgPanel> panels = {{"tokens, by document", held_tokens}};
  if (picture.exchanges_heads()) panels.push_back({"query heads after the exchange, by kv head", held_heads});
  panels.push_back({fmt::format("attention in lock step, {}: {:.1f}% of the time{}",
                                picture.is_gathered() ? "by kv head" : "hop by hop, by the rank whose keys it reads",
                                100 * picture.lock_step_efficiency(),
                                picture.num_places() > 1 ? "; how many of the rows sent here are seen" : ""),
                    picture.is_gathered() ? gathered_heads : hops});
  return panels;
}

}  // namespace

std::string to_svg(const ContextPicture& picture) {
  const int cp = picture.split.cp;
  const std::vector<SvgPanel> panels = panels_of(picture);
  const double pitch = row_pitch * cp + panel_gap;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      left + width + 20, top + pitch * static_cast<double>(panels.size()) - panel_gap + 20);
  svg += label(8, 20,
               fmt::format("{}: {} tokens on {}; largest rank over the mean {:.3f}, of contiguous chunks {:.3f}",
                           name_of(picture.split.balancer), picture.split.seq_len, ranks_text(picture),
                           picture.imbalance, picture.contiguous_imbalance));
  double y = top;
  for (const SvgPanel& panel : panels) {
    svg += label(left, y - 8, panel.title);
    for (int rank = 0; rank < cp; ++rank) {
      const double of_rank = y + row_pitch * rank;
      svg += label(8, of_rank + 14, fmt::format("rank {}", rank)) + panel.row(picture, rank, of_rank);
    }
    y += pitch;
  }
  return svg + "</svg>\n";
}

}  // namespace echelon
