#include "report/schedule_drawing.h"

#include "schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

constexpr double row_height = 22, row_pitch = 26, left = 60, top = 34, widest = 16000, narrowest_label = 9;

struct Colour {
  int red, green, blue;
};

Colour colour_of(const Action& action, double lightness) {
  const char letter = letter_of(action.kind);
  const Colour full = letter == 'F' ? Colour{61, 114, 192} : letter == 'B' ? Colour{46, 139, 87} : Colour{217, 119, 6};
  const auto mix = [&](int channel) { return static_cast<int>(channel + (255 - channel) * lightness); };
  return {mix(full.red), mix(full.green), mix(full.blue)};
}

std::string box(const Action& action, const std::array<double, 4>& rectangle, double lightness) {
  const auto [x, y, width, height] = rectangle;
  const auto [red, green, blue] = colour_of(action, lightness);
  std::string svg = fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="#{:02x}{:02x}{:02x}" stroke="white" stroke-width="0.5">)",
                                x, y, width, height, red, green, blue);
  svg += fmt::format("<title>{}</title></rect>\n", to_string(action));
  if (width < narrowest_label) return svg;
  return svg + fmt::format(R"(<text x="{:.2f}" y="{:.2f}" text-anchor="middle" fill="{}">{}</text>)"
                           "\n",
                           x + width / 2, y + height / 2 + 4, lightness > 0.4 ? "black" : "white", action.microbatch + 1);
}

}  // namespace

std::string to_svg(const Schedule& schedule, const Timeline& timeline) {
  double end = 0, shortest = 1e300;
  for (const Event& event : timeline.events) {
    end = std::max(end, event.end);
    if (event.end > event.start) shortest = std::min(shortest, event.end - event.start);
  }
  const double scale = end > 0 ? std::min(18 / shortest, widest / end) : 0;
  const double width = left + end * scale + 20, height = top + row_pitch * static_cast<double>(schedule.ranks.size()) + 30;

  std::string svg =
      fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{:.0f}" height="{:.0f}" font-family="sans-serif" font-size="11">)", width, height);
  svg += "\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += fmt::format(R"(<text x="{}" y="20">F blue, B green, W orange; later stages of a rank lighter; {:.6g} ms in all</text>)", left, end);
  const std::map<int, int> turns = turns_of(schedule.ranks);
  const double num_turns = static_cast<double>(schedule.num_stages) / static_cast<double>(schedule.ranks.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    svg += fmt::format("<text x=\"8\" y=\"{:.2f}\">rank {}</text>\n", top + row_pitch * static_cast<double>(rank) + 15, rank);
  for (const Event& event : timeline.events) {
    const Action& action = schedule.ranks[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    svg += box(action, {left + event.start * scale, top + row_pitch * event.rank, (event.end - event.start) * scale, row_height},
               0.7 * turns.at(action.stage) / num_turns);
  }
  return svg + "</svg>\n";
}

std::string to_chrome_json(const Schedule& schedule, const Timeline& timeline) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array({{{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"tid", 0}, {"args", {{"name", "pipeline"}}}}});
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", 0}, {"tid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (const Event& event : timeline.events) {
    const Action& action = schedule.ranks[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
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
