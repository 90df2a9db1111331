// A pipeline's timeline on a page: a row per rank, a bar per action.
#pragma once

#include "schedule/timeline.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// The kind of a bar, which selects its colour.
enum class BarKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  dispatch,  // of rows to experts, inside a pass
  combine,   // and back
  transfer,
  collective,
  optimizer,
  other
};
inline constexpr int num_bar_kinds = 10;
[[nodiscard]] BarKind bar_kind_of(ActionKind kind);
[[nodiscard]] std::string_view name_of(BarKind kind);  // "backward_input", as in the page's styles
/// What is under way between ranks is drawn below the rank's own actions, and may overlap them: first the rows of
/// experts, next to the passes that they are inside of.
enum class BarLane : std::uint8_t { actions, exchange, sent };
[[nodiscard]] constexpr BarLane lane_of(BarKind kind) {
  if (kind == BarKind::dispatch || kind == BarKind::combine) return BarLane::exchange;
  return kind == BarKind::transfer || kind == BarKind::collective ? BarLane::sent : BarLane::actions;
}

struct TimelineBar {
  int row = 0;
  BarKind kind = BarKind::other;
  int stage = -1;             // virtual pipeline stage; -1: of none
  int microbatch = -1;        // -1: of none
  double start = 0, end = 0;  // seconds
  // Above 1: adjacent actions merged into one bar; `kind` is that of most of their time.
  int num_actions = 1;
};

struct HtmlTimeline {
  std::string title = {}, note = {};
  std::vector<std::string> rows = {};  // labels
  std::vector<TimelineBar> bars = {};  // in any order
};

/// Every action that takes time. `programs[event.rank]` has the event's action; rows are labelled "rank 0" and so on.
/// Time starts at the first event.
[[nodiscard]] HtmlTimeline html_timeline(std::string title, const Timeline& timeline,
                                         const std::vector<Program>& programs);

/// Reduces to about `most_bars` bars in `most_rows` rows. Of more rows, evenly spaced ones are shown. Then adjacent
/// actions of a row and lane within a short time become one bar; the time is just long enough. The note describes what
/// was omitted.
[[nodiscard]] HtmlTimeline reduced(HtmlTimeline timeline, std::size_t most_bars = 40'000, std::size_t most_rows = 128);

/// The figure: heading, canvas, legend, buttons and the bars as data for the page's script.
[[nodiscard]] std::string to_html(const HtmlTimeline& timeline, int number);

}  // namespace echelon
