#include "report/html/timeline_drawing.h"

#include "base/median.h"
#include "report/html/drawn_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

constexpr double label_width = 110, header_height = 34, axis_height = 18, compute_height = 22, thin_height = 5;
constexpr double narrowest = 800, widest_drawing = 16000, middle_pass = 18;

template <class E>
const Action& action_of(const std::vector<DrawnRank>& ranks, const E& event) {
  return (*ranks[static_cast<std::size_t>(event.rank)].program)[static_cast<std::size_t>(event.action_id)];
}

/// Pixels per second: half of the passes show their number, unless the drawing would be too wide.
double scale_of(const std::vector<DrawnRank>& ranks, const Timeline& timeline) {
  double end = 0;
  std::vector<double> passes;
  for (const Event& event : timeline.events) {
    end = std::max(end, event.end);
    if (event.end > event.start && is_compute(action_of(ranks, event).kind)) passes.push_back(event.end - event.start);
  }
  if (end <= 0) return 0;
  if (passes.empty()) return narrowest / end;
  return std::clamp(middle_pass / median(std::move(passes)), narrowest / end, widest_drawing / end);
}

/// Lightness of a stage: later stages of a rank are lighter.
std::map<int, double> lightness_of(const Program& program) {
  std::set<int> stages;
  for (const Action& action : program)
    if (is_compute(action.kind)) stages.insert(action.stage);
  std::map<int, double> lightness;
  for (const int stage : stages)
    lightness.emplace(stage, 0.7 * static_cast<double>(lightness.size()) / static_cast<double>(stages.size()));
  return lightness;
}

/// Where the rows of a rank's band are.
struct Bands {
  int num_exchanges = 0;  // rows for it: one or none
  [[nodiscard]] double pitch() const { return compute_height + (3 + num_exchanges) * thin_height + 8; }
  [[nodiscard]] double top(int rank) const { return header_height + pitch() * rank; }
  [[nodiscard]] double thin(int rank, int row) const { return top(rank) + compute_height + row * thin_height; }

  [[nodiscard]] Rectangle place_of(const Event& event, double scale) const {
    const double x = label_width + event.start * scale, width = (event.end - event.start) * scale;
    switch (event.lane) {
      case Lane::compute: return {x, top(event.rank), width, compute_height};
      case Lane::transfer: return {x, thin(event.rank, num_exchanges + 1), width, thin_height};
      case Lane::collective: return {x, thin(event.rank, num_exchanges + 2), width, thin_height};
    }
    return {};
  }
};

/// Of the layers of an event's action, in seconds.
std::vector<DrawnMessage> messages_of(const DrawnRank& rank, const Event& event) {
  if (rank.layer_messages.empty()) return {};
  std::vector<DrawnMessage> messages = rank.layer_messages[static_cast<std::size_t>(event.action_id)];
  for (DrawnMessage& message : messages)
    for (double* const time : {&message.start, &message.end}) *time = event.start + *time * (event.end - event.start);
  return messages;
}

std::string svg_message(const DrawnMessage& message, double y, double scale, const char* colour) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}</title></rect>\n",
      label_width + message.start * scale, y, (message.end - message.start) * scale, thin_height, colour, message.name);
}

/// Ticks in seconds along the lower edge, at round values with room for the labels.
std::string axis(double end, double scale, double y) {
  constexpr double least_room = 150;
  const double rough = least_room / scale, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
  std::string svg;
  for (int tick = 0; tick * step <= end; ++tick) {
    const double x = label_width + tick * step * scale;
    svg += fmt::format(
        "<path d=\"M{0:.2f} {1:.2f}v5\" stroke=\"#888\"/><text x=\"{0:.2f}\" y=\"{2:.2f}\" "
        "text-anchor=\"middle\">{3:.6g} s</text>\n",
        x, y, y + 16, tick * step);
  }
  return svg;
}

Json named(std::string_view what, std::size_t pid, int tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

}  // namespace

std::string to_svg(const std::vector<DrawnRank>& ranks, const Timeline& timeline) {
  const double scale = scale_of(ranks, timeline);
  const Bands bands = {timeline.exchanges.empty() ? 0 : 1};
  const auto num_ranks = static_cast<int>(ranks.size());
  double end = 0;
  for (const Event& event : timeline.events) end = std::max(end, event.end);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{:.0f}" height="{:.0f}" font-family="sans-serif" font-size="11">)",
      label_width + end * scale + 20, bands.top(num_ranks) + axis_height + 4);
  svg += "\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += fmt::format(
      R"(<text x="{}" y="20">{:.6g} s; F blue, B green, W orange, later stages of a rank lighter, update purple; below: {}inside layers yellow, )"
      R"(transfers teal, collectives red</text>)",
      label_width, end, bands.num_exchanges > 0 ? "exchange of experts pink, " : "");
  svg += "\n";
  std::vector<std::map<int, double>> lightness;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    svg +=
        fmt::format("<text x=\"8\" y=\"{:.2f}\">{}</text>\n", bands.top(static_cast<int>(rank)) + 15, ranks[rank].name);
    lightness.push_back(lightness_of(*ranks[rank].program));
  }
  for (const Event& event : timeline.events) {
    if (event.end <= event.start) continue;
    const Action& action = action_of(ranks, event);
    const auto light = lightness[static_cast<std::size_t>(event.rank)].find(action.stage);
    const bool is_pass = is_compute(action.kind) && light != lightness[static_cast<std::size_t>(event.rank)].end();
    svg += svg_box(action, bands.place_of(event, scale), is_pass ? light->second : 0);
    for (const DrawnMessage& message : messages_of(ranks[static_cast<std::size_t>(event.rank)], event))
      svg += svg_message(message, bands.thin(event.rank, bands.num_exchanges), scale, "#c9a227");
  }
  for (const ExchangeEvent& exchange : timeline.exchanges)
    svg += svg_message(
        {fmt::format("{} in {}", exchange.name, to_string(action_of(ranks, exchange))), exchange.start, exchange.end},
        bands.thin(exchange.rank, 0), scale, "#d6409f");
  if (end > 0) svg += axis(end, scale, bands.top(num_ranks));
  return svg + "</svg>\n";
}

std::string to_chrome_json(const std::vector<DrawnRank>& ranks, const Timeline& timeline) {
  Json events = Json::array();
  const bool is_exchanged = !timeline.exchanges.empty();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    events.push_back(named("process_name", rank, 0, ranks[rank].name));
    const auto num_lanes = static_cast<int>(ranks[rank].lane_names.size());
    for (int lane = 0; lane < num_lanes; ++lane)
      events.push_back(named("thread_name", rank, lane, ranks[rank].lane_names[static_cast<std::size_t>(lane)]));
    if (!ranks[rank].layer_messages.empty()) events.push_back(named("thread_name", rank, num_lanes, "inside layers"));
    if (!is_exchanged) continue;
    events.push_back(named("thread_name", rank, num_lanes + 1, "exchange of experts"));
    for (int lane = 0; lane < num_lanes + 2; ++lane)  // next to compute, the first
      events.push_back({{"ph", "M"},
                        {"name", "thread_sort_index"},
                        {"pid", rank},
                        {"tid", lane},
                        {"args",
                         {{"sort_index", lane == 0               ? 0
                                         : lane == num_lanes + 1 ? 1
                                                                 : lane + 1}}}});
  }
  for (const Event& event : timeline.events) {
    const Action& action = action_of(ranks, event);
    Json args = {{"id", action.id}};
    if (action.stage >= 0) args["stage"] = action.stage;
    if (action.microbatch >= 0) args["microbatch"] = action.microbatch;
    if (action.unit != whole_stage) args["unit"] = action.unit;
    const DrawnRank& rank = ranks[static_cast<std::size_t>(event.rank)];
    if (is_compute(action.kind) && !rank.layers_send_seconds.empty())
      args["layers_send_us"] = rank.layers_send_seconds[static_cast<std::size_t>(event.action_id)] * 1e6;
    events.push_back({{"ph", "X"},
                      {"name", name_of(action.kind)},  // one for all microbatches, so that a viewer can sum them up
                      {"cat", name_of(action.kind)},
                      {"pid", event.rank},
                      {"tid", rank.lanes[static_cast<std::size_t>(event.action_id)]},
                      {"ts", event.start * 1e6},
                      {"dur", (event.end - event.start) * 1e6},
                      {"args", std::move(args)}});
    for (const DrawnMessage& message : messages_of(rank, event))
      events.push_back({{"ph", "X"},
                        {"name", message.name},
                        {"cat", "inside layers"},
                        {"pid", event.rank},
                        {"tid", rank.lane_names.size()},
                        {"ts", message.start * 1e6},
                        {"dur", (message.end - message.start) * 1e6},
                        {"args", {{"id", action.id}}}});
  }
  for (const ExchangeEvent& exchange : timeline.exchanges)
    events.push_back({{"ph", "X"},
                      {"name", exchange.name},
                      {"cat", "exchange"},
                      {"pid", exchange.rank},
                      {"tid", ranks[static_cast<std::size_t>(exchange.rank)].lane_names.size() + 1},
                      {"ts", exchange.start * 1e6},
                      {"dur", (exchange.end - exchange.start) * 1e6},
                      {"args", {{"id", exchange.action_id}}}});
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace echelon
