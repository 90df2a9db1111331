// The picture of an exchange in the formats of graphics.
#include "base/text/counted.h"
#include "pages/exchange/exchange_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;
using Bar = ExchangePicture::Bar;

constexpr double label_width = 150, lane_width = 1000, lane_height = 22, lane_pitch = 24,
                 pass_pitch = 2 * lane_pitch + 16, first_pass_y = 34;

const char* colour_of(const Bar& bar) {
  if (bar.name == "experts") return "#3d72c0";
  if (bar.name == "shared") return "#8657b8";
  return bar.name == "dispatch" ? "#a8821a" : "#75590c";
}

std::string svg_bar(const Bar& bar, double y, double scale) {
  const double x = label_width + bar.start * scale, bar_width = (bar.end - bar.start) * scale;
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" stroke=\"white\" "
      "stroke-width=\"0.5\"><title>{}: {:.4g} ms, from {:.4g} ms</title></rect>\n",
      x, y, bar_width, lane_height, colour_of(bar), bar.name, bar.end - bar.start, bar.start);
}

/// The lanes of a pass with their names.
std::vector<std::pair<const char*, const std::vector<Bar>*>> lanes_of(const ExchangePicture::Pass& pass) {
  return {{"compute", &pass.computed}, {"exchange of experts", &pass.exchanged}};
}

BarKind kind_of(const Bar& bar, const ExchangePicture::Pass& pass) {
  if (bar.name == "dispatch") return BarKind::dispatch;
  if (bar.name == "combine") return BarKind::combine;
  if (bar.name == "shared") return BarKind::other;
  return pass.name == "forward" ? BarKind::forward : BarKind::backward;
}

}  // namespace

std::string to_svg(const ExchangePicture& picture) {
  double longest = 0;
  for (const ExchangePicture::Pass& pass : picture.passes) longest = std::max(longest, pass.end);
  const double scale = longest > 0 ? lane_width / longest : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      label_width + lane_width + 20, first_pass_y + pass_pitch * static_cast<double>(picture.passes.size()));
  svg += fmt::format(
      "<text x=\"8\" y=\"20\">experts on {}, {} loads, rounds: {}; experts blue, shared expert purple, dispatch "
      "and combine yellow and brown</text>\n",
      counted(picture.request.num_ranks, "rank"), picture.request.load, picture.num_rounds);
  double y = first_pass_y;
  for (const ExchangePicture::Pass& pass : picture.passes) {
    double of_lane = y;
    for (const auto& [name, bars] : lanes_of(pass)) {
      svg += fmt::format("<text x=\"8\" y=\"{:.2f}\">{}, {}</text>\n", of_lane + 15, pass.name, name);
      for (const Bar& bar : *bars) svg += svg_bar(bar, of_lane, scale);
      of_lane += lane_pitch;
    }
    y += pass_pitch;
  }
  return svg + "</svg>\n";
}

std::string to_chrome_json(const ExchangePicture& picture) {
  Json events = Json::array();
  const auto add_name = [&](const char* what, std::size_t pid, int tid, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
  };
  for (std::size_t pid = 0; pid < picture.passes.size(); ++pid) {
    add_name("process_name", pid, 0, picture.passes[pid].name);
    int tid = 0;
    for (const auto& [name, bars] : lanes_of(picture.passes[pid])) {
      add_name("thread_name", pid, tid, name);
      for (const Bar& bar : *bars)
        events.push_back({{"ph", "X"},
                          {"name", bar.name},
                          {"cat", tid == 0 ? "compute" : "exchange"},
                          {"pid", pid},
                          {"tid", tid},
                          {"ts", bar.start * 1e3},
                          {"dur", (bar.end - bar.start) * 1e3}});
      ++tid;
    }
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

HtmlReport exchange_page(const ExchangePicture& picture) {
  HtmlReport page;
  page.title = fmt::format("A layer with experts on {}", counted(picture.request.num_ranks, "rank"));
  page.summary = fmt::format("What the most loaded rank computes while rows travel: {} loads, rounds: {}.",
                             picture.request.load, picture.num_rounds);
  HtmlTimeline timeline = {.title = "Passes", .note = "The shared expert is drawn as other."};
  for (const ExchangePicture::Pass& pass : picture.passes) {
    page.tiles.push_back({pass.name, text_of(HtmlUnit::seconds, pass.end * 1e-3),
                          fmt::format("{} exposed", text_of(HtmlUnit::seconds, pass.exposed_ms() * 1e-3))});
    const auto row = static_cast<int>(timeline.rows.size());
    timeline.rows.push_back(pass.name);
    for (const auto& [name, bars] : lanes_of(pass))
      for (const Bar& bar : *bars)
        timeline.bars.push_back(
            {.row = row, .kind = kind_of(bar, pass), .start = bar.start * 1e-3, .end = bar.end * 1e-3});
  }
  page.timelines = {std::move(timeline)};
  return page;
}

}  // namespace echelon
