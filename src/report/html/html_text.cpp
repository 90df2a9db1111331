#include "report/html/html_text.h"

#include "base/text/written_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon {
namespace {

std::string three_digits(double amount) {
  const double size = std::abs(amount);
  if (size == 0) return "0";
  if (size >= 99.95) return grouped(amount);
  if (size < 1e-3) return fmt::format("{:.2e}", amount);
  return fmt::format("{:.{}f}", amount, size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4);
}

/// The largest unit that the value reaches, else the smallest. Zero is printed in the base unit.
template <std::size_t N>
std::string in_units(double amount, const std::array<std::pair<double, const char*>, N>& units) {
  const auto base = std::find_if(units.begin(), units.end(), [](const auto& unit) { return unit.first == 1; });
  if (amount == 0) return fmt::format("0 {}", base->second);
  for (const auto& [size, name] : units)
    if (std::abs(amount) >= 0.9995 * size || size == units.back().first)
      return three_digits(amount / size) + " " + name;
  return {};
}

}  // namespace

std::string text_of(HtmlUnit unit, double amount) {
  using Units = std::pair<double, const char*>;
  constexpr double kibi = 1024;
  constexpr std::array<Units, 5> bytes = {Units{kibi * kibi * kibi * kibi, "TiB"},
                                          {kibi * kibi * kibi, "GiB"},
                                          {kibi * kibi, "MiB"},
                                          {kibi, "KiB"},
                                          {1, "B"}};
  constexpr std::array<Units, 4> seconds = {Units{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}};
  if (!std::isfinite(amount)) return "–";
  switch (unit) {
    case HtmlUnit::number: return amount == std::round(amount) ? grouped(amount) : three_digits(amount);
    case HtmlUnit::seconds: return in_units(amount, seconds);
    case HtmlUnit::bytes: return in_units(amount, bytes);
    case HtmlUnit::fraction: return three_digits(100 * amount) + " %";
  }
  return {};
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char letter : text) {
    switch (letter) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: {
        const auto code = static_cast<unsigned char>(letter);
        const bool is_control = (code < 0x20 && letter != '\n' && letter != '\t') || code == 0x7f;
        is_control ? html += "\xEF\xBF\xBD" : html += letter;
      }
    }
  }
  return html;
}

std::string embedded(std::string json) {
  for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

}  // namespace echelon
