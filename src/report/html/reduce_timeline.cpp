// Reduces rows, then bars, to what a page can show.
#include "report/html/html_text.h"
#include "report/html/html_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace echelon {
namespace {

/// Evenly spaced rows, including the first and the last.
HtmlTimeline with_fewer_rows(HtmlTimeline timeline, std::size_t most_rows) {
  const std::size_t num_rows = timeline.rows.size();
  if (num_rows <= most_rows) return timeline;
  HtmlTimeline fewer = {.title = std::move(timeline.title), .note = std::move(timeline.note), .rows = {}, .bars = {}};
  std::vector<int> row_now(num_rows, -1);
  for (std::size_t i = 0; i < most_rows; ++i) {
    const std::size_t chosen = i * (num_rows - 1) / std::max<std::size_t>(1, most_rows - 1);
    row_now[chosen] = static_cast<int>(fewer.rows.size());
    fewer.rows.push_back(std::move(timeline.rows[chosen]));
  }
  for (TimelineBar bar : timeline.bars) {
    bar.row = row_now[static_cast<std::size_t>(bar.row)];
    if (bar.row >= 0) fewer.bars.push_back(bar);
  }
  fewer.note += fmt::format("{}{} of {} rows are shown, evenly chosen.", fewer.note.empty() ? "" : " ",
                            fewer.rows.size(), num_rows);
  return fewer;
}

/// A bar under construction: its final kind is the one with most time in it.
class Growing {
 public:
  explicit Growing(const TimelineBar& bar) : bar_(bar) {
    seconds_[static_cast<std::size_t>(bar.kind)] = bar.end - bar.start;
  }

  [[nodiscard]] bool takes(const TimelineBar& bar, double longest) const {
    return bar.row == bar_.row && lane_of(bar.kind) == lane_of(bar_.kind) &&
           std::max(bar.end, bar_.end) - bar_.start <= longest;
  }
  void add(const TimelineBar& bar) {
    seconds_[static_cast<std::size_t>(bar.kind)] += bar.end - bar.start;
    if (bar.stage != bar_.stage) bar_.stage = -1;
    bar_.end = std::max(bar_.end, bar.end);
    bar_.num_actions += bar.num_actions;
  }
  [[nodiscard]] TimelineBar done() const {
    TimelineBar bar = bar_;
    if (bar.num_actions > 1)
      bar.kind = static_cast<BarKind>(std::max_element(seconds_.begin(), seconds_.end()) - seconds_.begin());
    if (bar.num_actions > 1) bar.microbatch = -1;
    return bar;
  }

 private:
  TimelineBar bar_;
  std::array<double, num_bar_kinds> seconds_{};
};

std::vector<TimelineBar> merged(const std::vector<TimelineBar>& bars, double longest) {
  std::vector<TimelineBar> fewer;
  std::map<std::pair<int, BarLane>, Growing> open;  // of each row and lane
  for (const TimelineBar& bar : bars) {
    const auto [lane, is_first] = open.try_emplace({bar.row, lane_of(bar.kind)}, bar);
    if (is_first) continue;
    if (lane->second.takes(bar, longest)) {
      lane->second.add(bar);
      continue;
    }
    fewer.push_back(lane->second.done());
    lane->second = Growing(bar);
  }
  for (const auto& [lane, last] : open) fewer.push_back(last.done());
  return fewer;
}

}  // namespace

HtmlTimeline reduced(HtmlTimeline timeline, std::size_t most_bars, std::size_t most_rows) {
  timeline = with_fewer_rows(std::move(timeline), most_rows);
  if (timeline.bars.size() <= most_bars) return timeline;
  std::stable_sort(timeline.bars.begin(), timeline.bars.end(),
                   [](const TimelineBar& a, const TimelineBar& b) { return a.start < b.start; });
  double span = 0;
  for (const TimelineBar& bar : timeline.bars) span = std::max(span, bar.end);
  double longest = span / 65536;
  std::vector<TimelineBar> fewer = merged(timeline.bars, longest);
  while (fewer.size() > most_bars && longest < span) fewer = merged(timeline.bars, longest *= 1.25);
  timeline.note += fmt::format("{}{} actions exceed what a page can show: neighbours within {} are drawn as one bar.",
                               timeline.note.empty() ? "" : " ",
                               text_of(HtmlUnit::number, static_cast<double>(timeline.bars.size())),
                               text_of(HtmlUnit::seconds, longest));
  timeline.bars = std::move(fewer);
  return timeline;
}

}  // namespace echelon
