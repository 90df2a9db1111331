#include "pages/draw_html.h"

#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

Timeline in_seconds(Timeline timeline) {
  for (Event& event : timeline.events) event.start *= 1e-3, event.end *= 1e-3;
  return timeline;
}

}  // namespace

HtmlReport schedule_page(const DrawnSchedule& drawn) {
  const Schedule& schedule = drawn.schedule;
  HtmlReport page;
  page.title = fmt::format("{}, {}, {}", drawn.name, counted(schedule.ranks.size(), "rank"),
                           counted(schedule.num_microbatches, "microbatch"));
  page.summary = fmt::format(
      "A forward takes {:.4g} ms, the gradients of its input {:.4g} ms and of its weights {:.4g} ms, of all stages of "
      "a rank.",
      drawn.times.forward, drawn.times.backward_input, drawn.times.backward_weight);
  page.tiles = {
      {"Bubble", text_of(HtmlUnit::fraction, bubble(drawn.timeline, schedule.ranks)), "of the ranks' time"},
      {"Bubble rate", fmt::format("{:.4f}", bubble_rate(drawn.cost_ms, schedule.num_microbatches, drawn.times)),
       "of the longest rank"},
      {"Step", text_of(HtmlUnit::seconds, drawn.cost_ms * 1e-3), "of the longest rank"},
      {"In flight", fmt::format("{:.4g}", *std::max_element(drawn.peaks.begin(), drawn.peaks.end())),
       "microbatches at most"}};
  page.timelines = {html_timeline("Passes", in_seconds(drawn.timeline), schedule.ranks)};
  HtmlBars flight = {.title = "Activations in flight",
                     .note = "In microbatches of a rank's share of the model, at the moment when it keeps most.",
                     .unit = HtmlUnit::number};
  for (std::size_t rank = 0; rank < drawn.peaks.size(); ++rank)
    flight.rows.push_back({.label = fmt::format("rank {}", rank), .segments = {{"activations", drawn.peaks[rank]}}});
  page.bars = {std::move(flight)};
  return page;
}

}  // namespace echelon
