#include "report/html/schedule_drawing.h"

#include "report/html/drawn_box.h"
#include "schedule/draw/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

constexpr double row_height = 22, row_pitch = 26, left = 60, top = 34, widest = 16000;

}  // namespace

std::string to_svg(const Schedule& schedule, const Timeline& timeline) {
  double end = 0, shortest = 1e300;
  for (const Event& event : timeline.events) {
    end = std::max(end, event.end);
    if (event.end > event.start) shortest = std::min(shortest, event.end - event.start);
  }
  const double scale = end > 0 ? std::min(18 / shortest, widest / end) : 0;
  const double width = left + end * scale + 20,
               height = top + row_pitch * static_cast<double>(schedule.ranks.size()) + 30;

  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{:.0f}" height="{:.0f}" font-family="sans-serif" font-size="11">)",
      width, height);
  svg += "\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += fmt::format(
      R"(<text x="{}" y="20">F blue, B green, W orange; later stages of a rank lighter; {:.6g} ms in all</text>)", left,
      end);
  const std::map<int, int> turns = turns_of(schedule.ranks);
  const double num_turns = static_cast<double>(schedule.num_stages) / static_cast<double>(schedule.ranks.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    svg += fmt::format("<text x=\"8\" y=\"{:.2f}\">rank {}</text>\n", top + row_pitch * static_cast<double>(rank) + 15,
                       rank);
  for (const Event& event : timeline.events) {
    const Action& action =
        schedule.ranks[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    svg += svg_box(
        action,
        {left + event.start * scale, top + row_pitch * event.rank, (event.end - event.start) * scale, row_height},
        0.7 * turns.at(action.stage) / num_turns);
  }
  return svg + "</svg>\n";
}

std::string to_chrome_json(const Schedule& schedule, const Timeline& timeline) {
  using Json = nlohmann::ordered_json;
  Json events =
      Json::array({{{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"tid", 0}, {"args", {{"name", "pipeline"}}}}});
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (const Event& event : timeline.events) {
    const Action& action =
        schedule.ranks[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    events.push_back({{"ph", "X"},
                      {"name", fmt::format("{}{}", letter_of(action.kind), action.microbatch + 1)},
                      {"cat", name_of(action.kind)},
                      {"pid", 0},
                      {"tid", event.rank},
                      {"ts", event.start * 1e3},
                      {"dur", (event.end - event.start) * 1e3},
                      {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}}}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace echelon
