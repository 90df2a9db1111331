// The picture of context parallelism as sections of an HTML page: at most 16 parts of a row, and 64 rows of a table.
#include "pages/context_parallel/context_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr std::int64_t most_parts = 16, most_table_rows = 64;

struct Interval {
  std::int64_t first = 0, count = 0;
};

/// [first, end) in at most most_parts intervals of equal size; the last may be smaller.
std::vector<Interval> intervals(std::int64_t first, std::int64_t end) {
  const std::int64_t size = std::max<std::int64_t>(1, (end - first + most_parts - 1) / most_parts);
  std::vector<Interval> all;
  for (; first < end; first += size) all.push_back({first, std::min(size, end - first)});
  return all;
}

std::string name_of_interval(const char* noun, const Interval& of) {
  return fmt::format("{}{} {}", noun, of.count == 1 ? "" : "s", range_text(of.first, of.count));
}

double sum_of(const std::vector<std::int64_t>& amounts, const Interval& of) {
  const auto first = amounts.begin() + of.first;
  return static_cast<double>(std::accumulate(first, first + of.count, std::int64_t{0}));
}

/// All of [0, num_rows), or evenly chosen ones.
std::vector<int> shown_rows(std::int64_t num_rows) {
  const std::int64_t num_shown = std::min(num_rows, most_table_rows);
  std::vector<int> rows;
  for (std::int64_t i = 0; i < num_shown; ++i)
    rows.push_back(static_cast<int>(num_shown < num_rows ? i * (num_rows - 1) / (num_shown - 1) : i));
  return rows;
}

HtmlBars bars_of_tokens(const ContextPicture& picture) {
  HtmlBars bars = {.title = "Context parallelism: tokens by document", .unit = HtmlUnit::number};
  const std::vector<Interval> parts = intervals(0, std::ssize(picture.documents) - 1);
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    HtmlBars::Row& row = bars.rows.emplace_back(HtmlBars::Row{.label = fmt::format("rank {}", rank)});
    for (const Interval& part : parts)
      row.segments.push_back(
          {name_of_interval("document", part), sum_of(picture.document_tokens[static_cast<std::size_t>(rank)], part)});
  }
  return bars;
}

/// Steps in lock step, each with its waits.
HtmlBars bars_of_pairs(const ContextPicture& picture) {
  HtmlBars bars = {.title = "Context parallelism: pairs (query, key) of attention",
                   .note = "Of " + pairs_text(picture).substr(std::string_view("pairs (query, key) of ").size()) + ".",
                   .unit = HtmlUnit::number};
  const std::vector<Interval> parts = intervals(0, picture.num_steps());
  for (int rank = 0; rank < picture.split.cp; ++rank) {
    HtmlBars::Row& row = bars.rows.emplace_back(HtmlBars::Row{.label = fmt::format("rank {}", rank)});
    for (const Interval& part : parts) {
      double pairs = 0;
      for (std::int64_t step = part.first; step < part.first + part.count; ++step)
        pairs += static_cast<double>(picture.pairs_of_step(picture.place_of(rank), static_cast<int>(step)));
      row.segments.push_back({picture.num_steps() > 1 ? name_of_interval("hop", part) : "attention", pairs});
      row.segments.push_back({"waits", sum_of(picture.longest, part) - pairs, true});
    }
  }
  return bars;
}

HtmlTable table_of_heads(const ContextPicture& picture) {
  const ExchangedRows sent = exchanged_rows(picture);
  HtmlTable table = {.title = "Context parallelism: heads after the exchange",
                     .note = "Rows of a head that a rank sends to each other rank of its group, forward.",
                     .columns = {{"rank"}, {"group"}, {"heads"}, {"kv heads"}}};
  for (const char* const name : {"q", "k", "v", "out"}) table.columns.push_back({name, true});
  for (const int rank : shown_rows(picture.split.cp)) {
    const HeadSplit heads = picture.heads_of(rank);
    table.rows.push_back(
        {.cells = {std::to_string(rank), picture.name_of_place(picture.place_of(rank)),
                   range_text(heads.first_head, heads.num_heads), range_text(heads.first_kv_head, heads.num_kv_heads),
                   std::to_string(sent.queries), std::to_string(sent.keys), std::to_string(sent.values),
                   std::to_string(sent.results)}});
  }
  return table;
}

/// Rows of keys that arrive at a place: by hop, or gathered by rank.
std::vector<std::int64_t> arriving_rows(const ContextPicture& picture, int place) {
  const std::vector<std::int64_t>& by_distance = picture.seen_rows[static_cast<std::size_t>(place)];
  if (!picture.is_gathered()) return by_distance;
  std::vector<std::int64_t> by_rank;
  for (int rank = 0; rank < picture.num_places(); ++rank)
    by_rank.push_back(by_distance[static_cast<std::size_t>(picture.source_of(place, rank))]);
  return by_rank;
}

HtmlTable table_of_rows(const ContextPicture& picture) {
  std::string note = sent_text(picture) + ".";
  note.front() = 'W';
  HtmlTable table = {.title = "Context parallelism: what is sent", .note = std::move(note), .columns = {{"to"}}};
  const std::vector<Interval> parts = intervals(picture.is_gathered() ? 0 : 1, picture.num_places());
  for (const Interval& part : parts)
    table.columns.push_back({name_of_interval(picture.is_gathered() ? "of rank" : "hop", part), true});
  for (const int place : shown_rows(picture.num_places())) {
    HtmlTable::Row& row = table.rows.emplace_back(HtmlTable::Row{.cells = {picture.name_of_place(place)}});
    const std::vector<std::int64_t> arriving = arriving_rows(picture, place);
    for (const Interval& part : parts) row.cells.push_back(text_of(HtmlUnit::number, sum_of(arriving, part)));
  }
  return table;
}

std::vector<HtmlTable> tables_of(const ContextPicture& picture) {
  std::vector<HtmlTable> tables;
  if (picture.exchanges_heads()) tables.push_back(table_of_heads(picture));
  if (picture.num_places() > 1) tables.push_back(table_of_rows(picture));
  return tables;
}

}  // namespace

HtmlReport context_page(const ContextPicture& picture) {
  HtmlReport page;
  page.title =
      fmt::format("{}, {} tokens on {}", name_of(picture.split.balancer), picture.split.seq_len, ranks_text(picture));
  page.summary = "Which rank holds which tokens, what is sent, and what attention computes.";
  page.tiles = {{"Balance", fmt::format("{:.3f}", picture.imbalance), "largest rank over the mean"},
                {"Before", fmt::format("{:.3f}", picture.contiguous_imbalance), "contiguous chunks"},
                {"Lock step", text_of(HtmlUnit::fraction, picture.lock_step_efficiency()), "of the time is attention"}};
  page.bars = {bars_of_tokens(picture), bars_of_pairs(picture)};
  page.tables = tables_of(picture);
  return page;
}

void add_context_section(HtmlReport& page, const Blueprint& blueprint, const DrawnSequence& sequence) {
  const RunConfig& config = blueprint.config();
  const std::int64_t cp = config.parallelism.context_parallel_degree, T = config.training.seq_len;
  if (cp == 1) return;
  if (cp * T > ContextPicture::most_hop_tokens) {
    page.notes.push_back(
        fmt::format("{} tokens on {} ranks of context parallelism are too many for a picture.", T, cp));
    return;
  }
  const ContextPicture picture = context_picture(
      blueprint, sequence.documents.empty() ? DocumentOffsets{0, static_cast<std::int32_t>(T)} : sequence.documents);
  page.facts.push_back(
      {"context parallelism",
       fmt::format("{}, {}: largest rank over the mean of pairs {:.3f}, of contiguous chunks {:.3f}; "
                   "in lock step {} of the time is attention",
                   ranks_text(picture), name_of(picture.split.balancer), picture.imbalance,
                   picture.contiguous_imbalance, text_of(HtmlUnit::fraction, picture.lock_step_efficiency()))});
  page.bars.push_back(bars_of_tokens(picture));
  page.bars.back().note = sequence.note;
  const std::vector<std::int64_t> windows = blueprint.rank(0).part().options.windows;
  if (picture.split.window == 0 && std::ranges::any_of(windows, [](std::int64_t window) { return window > 0; }))
    page.notes.push_back("Layers with a window compute fewer pairs and send fewer rows than drawn.");
  page.bars.push_back(bars_of_pairs(picture));
  for (HtmlTable& table : tables_of(picture)) page.details.push_back(std::move(table));
}

}  // namespace echelon
