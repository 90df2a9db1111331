#include "report/html/html_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Series = HtmlCurve::Series;

constexpr std::size_t most_points = 1000, most_dots = 60;
constexpr double width = 1000, height = 300;  // in the drawing's own units; the page stretches it

/// Keeps the ends, and the minimum and maximum of every stretch between them, so that outliers remain.
Series thinned(const Series& series) {
  const std::size_t size = series.x.size(), num_stretches = most_points / 2 - 1;
  if (size <= most_points) return series;
  std::vector<std::size_t> chosen = {0, size - 1};
  for (std::size_t i = 0; i < num_stretches; ++i) {
    const auto at = [&](std::size_t stretch) {
      return series.y.begin() + static_cast<std::ptrdiff_t>(stretch * size / num_stretches);
    };
    const auto [least, greatest] = std::minmax_element(at(i), at(i + 1));
    for (const auto& one : {least, greatest}) chosen.push_back(static_cast<std::size_t>(one - series.y.begin()));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  Series thin = {.name = series.name, .x = {}, .y = {}};
  for (const std::size_t i : chosen) thin.x.push_back(series.x[i]), thin.y.push_back(series.y[i]);
  return thin;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value), high = std::max(high, value);
  }
  [[nodiscard]] bool is_empty() const { return low > high; }
  [[nodiscard]] double at(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

/// 1, 2 or 5 times a power of ten, so that there are about five steps.
double step_of(const Range& range) {
  const double rough = (range.high - range.low) / 4;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= 0.999 * rough) return factor * power;
  return 10 * power;
}

/// The range of y, from tick to tick.
Range rounded(Range range) {
  if (!(range.high > range.low)) {
    const double margin = range.low == 0 ? 1 : std::abs(range.low) * 0.1;
    range = {range.low - margin, range.high + margin};
  }
  const double step = step_of(range);
  return {std::floor(range.low / step + 1e-9) * step, std::ceil(range.high / step - 1e-9) * step};
}

/// "8" instead of "8.00", and "0.0005" next to "0.001": ticks are round.
std::string tick_text(HtmlUnit unit, double value) {
  constexpr double least_fixed = 1e-5;
  const bool is_fixed = unit == HtmlUnit::number && std::abs(value) < 1e-3 && std::abs(value) >= least_fixed;
  std::string text = is_fixed ? fmt::format("{:.7f}", value) : text_of(unit, value);
  const std::size_t point = text.find('.'), end = std::min(text.find_first_not_of("-.,0123456789"), text.size());
  if (point == std::string::npos) return text;
  std::size_t last = end;
  while (last > point + 1 && text[last - 1] == '0') --last;
  if (last == point + 1) last = point;
  return text.erase(last, end - last);
}

std::string path_of(const Series& series, const HtmlCurve& curve, const Range& xs, const Range& ys, bool is_dots) {
  std::string path;
  bool is_open = false;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const double x = curve.is_log_x ? std::log(series.x[i]) : series.x[i];
    if (!std::isfinite(series.y[i]) || !std::isfinite(x)) {
      is_open = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}{}", is_open && !is_dots ? "L" : "M", width * xs.at(x),
                        height * (1 - ys.at(series.y[i])), is_dots ? "h0" : "");
    is_open = true;
  }
  return path;
}

std::string lines_of(const std::vector<Series>& series, const HtmlCurve& curve, const Range& xs, const Range& ys) {
  std::string html;
  for (std::size_t i = 0; i < series.size(); ++i) {
    html += fmt::format("<path class=\"line s{}\" d=\"{}\"/>", i % 6, path_of(series[i], curve, xs, ys, false));
    if (series[i].x.size() <= most_dots)
      html += fmt::format("<path class=\"dots s{}\" d=\"{}\"/>", i % 6, path_of(series[i], curve, xs, ys, true));
  }
  return html;
}

/// The drawing with labels of its ticks next to it. The drawing is stretched to the page's width; labels are not.
std::string drawing_of(const std::vector<Series>& series, const HtmlCurve& curve, const Range& xs, const Range& ys) {
  std::string ticks, lines;
  const double step = step_of(ys);
  for (double y = ys.low; y <= ys.high + step / 2; y += step) {
    const double value = std::abs(y) < step * 1e-6 ? 0 : y;
    lines += fmt::format("<path class=\"grid\" d=\"M0 {0:.1f}H{1}\"/>", height * (1 - ys.at(y)), width);
    ticks += fmt::format("<span class=\"y\" style=\"bottom:{:.2f}%\">{}</span>", 100 * ys.at(y),
                         tick_text(curve.unit, value));
  }
  const auto x_of = [&](double x) { return tick_text(HtmlUnit::number, curve.is_log_x ? std::exp(x) : x); };
  ticks +=
      fmt::format("<span class=\"x first\">{}</span><span class=\"x name\">{}</span><span class=\"x last\">{}</span>",
                  x_of(xs.low), escaped(curve.x_name), x_of(xs.high));
  return fmt::format(
      "<div class=\"plot\" tabindex=\"0\" role=\"img\" aria-label=\"{}\"><svg viewBox=\"0 0 {} {}\" "
      "preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\">{}{}</svg>{}"
      "<div class=\"cursor\" hidden></div><div class=\"tip\" hidden></div></div>\n",
      escaped(curve.title), width, height, lines, lines_of(series, curve, xs, ys), ticks);
}

std::string data_of(const std::vector<Series>& series, const HtmlCurve& curve, const Range& xs, const Range& ys) {
  nlohmann::ordered_json data = {
      {"x_name", curve.x_name}, {"log", curve.is_log_x}, {"xs", {xs.low, xs.high}}, {"ys", {ys.low, ys.high}}};
  data["series"] = nlohmann::ordered_json::array();
  for (const Series& one : series) {
    nlohmann::ordered_json texts = nlohmann::ordered_json::array();
    for (const double y : one.y) texts.push_back(text_of(curve.unit, y));
    data["series"].push_back({{"name", one.name}, {"x", one.x}, {"y", one.y}, {"text", std::move(texts)}});
  }
  return embedded(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

std::string to_html(const HtmlCurve& curve) {
  std::vector<Series> series;
  Range xs, ys;
  for (const Series& whole : curve.series) {
    series.push_back(thinned(whole));
    for (const double x : series.back().x) xs.take(curve.is_log_x ? std::log(x) : x);
    for (const double y : series.back().y) ys.take(y);
  }
  if (xs.is_empty() || ys.is_empty()) return {};
  ys = rounded(ys);
  std::string html = fmt::format("<figure class=\"curve\"><figcaption><h3>{}</h3>", escaped(curve.title));
  html += "<ul class=\"legend\">";
  if (series.size() > 1)
    for (std::size_t i = 0; i < series.size(); ++i)
      html += fmt::format("<li><i class=\"s{}\"></i>{}</li>", i % 6, escaped(series[i].name));
  html += "</ul></figcaption>\n" + drawing_of(series, curve, xs, ys);
  return html + fmt::format("<script type=\"application/json\">{}</script></figure>\n", data_of(series, curve, xs, ys));
}

}  // namespace echelon
