#include "pages/scaling_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

struct Frame {
  double width = 640, height = 400, margin = 60;
  double least_devices = 1, most_devices = 2, least_seconds = 1, most_seconds = 2;

  [[nodiscard]] double x(double devices) const {
    return margin + (width - 2 * margin) * std::log(devices / least_devices) /
                        std::max(1e-9, std::log(most_devices / least_devices));
  }
  [[nodiscard]] double y(double seconds) const {
    return margin + (height - 2 * margin) * std::log(most_seconds / seconds) /
                        std::max(1e-9, std::log(most_seconds / least_seconds));
  }
};

}  // namespace

std::string to_svg(const Scaling& scaling) {
  const std::vector<ScalingPoint>& points = scaling.points;
  Frame frame;
  if (!points.empty()) {
    const double first = points.front().plan.outcome.step_seconds,
                 ratio =
                     static_cast<double>(points.back().num_devices) / static_cast<double>(points.front().num_devices);
    frame.least_devices = static_cast<double>(points.front().num_devices);
    frame.most_devices = static_cast<double>(points.back().num_devices);
    frame.most_seconds = first;
    frame.least_seconds = first / ratio;
    for (const ScalingPoint& each : points) {
      frame.most_seconds = std::max(frame.most_seconds, each.plan.outcome.step_seconds);
      frame.least_seconds = std::min(frame.least_seconds, each.plan.outcome.step_seconds);
    }
  }
  std::string line, ideal, marks;
  for (const ScalingPoint& each : points) {
    const auto devices = static_cast<double>(each.num_devices);
    const double seconds = each.plan.outcome.step_seconds,
                 perfect = points.front().plan.outcome.step_seconds * frame.least_devices / devices;
    line += fmt::format("{:.1f},{:.1f} ", frame.x(devices), frame.y(seconds));
    ideal += fmt::format("{:.1f},{:.1f} ", frame.x(devices), frame.y(perfect));
    marks += fmt::format(
        "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"3\" fill=\"#1f77b4\"/><text x=\"{0:.1f}\" y=\"{2:.1f}\">{3:.3g} s, "
        "{4:.0f} %</text>"
        "<text x=\"{0:.1f}\" y=\"{5:.1f}\">{6}</text>\n",
        frame.x(devices), frame.y(seconds), frame.y(seconds) - 8, seconds, 100 * each.efficiency,
        frame.height - frame.margin / 3, each.num_devices);
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\" "
      "text-anchor=\"middle\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{}\" y=\"20\">seconds of a step over devices; "
      "dashed: perfect scaling</text>\n"
      "<polyline fill=\"none\" stroke=\"#999\" stroke-dasharray=\"4\" points=\"{}\"/>\n<polyline fill=\"none\" "
      "stroke=\"#1f77b4\" points=\"{}\"/>\n{}</svg>\n",
      frame.width, frame.height, frame.width / 2, ideal, line, marks);
}

}  // namespace echelon
