#include "base/text/written_number.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace echelon {

std::string grouped(double whole) {
  std::string digits = fmt::format("{:.0f}", whole);
  const std::size_t first = whole < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string written(double number) {
  constexpr std::pair<double, const char*> words[] = {{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}};
  // Of four digits, so that 999,999 is a million.
  const double rounded = number == 0 ? 0 : std::stod(fmt::format("{:.3e}", number)), size = std::abs(rounded);
  for (const auto& [unit, word] : words)
    if (size >= unit && size < 10'000 * unit) return written(rounded / unit) + word;
  return size >= 10'000 && size < 1e6 ? grouped(rounded) : fmt::format("{:.4g}", rounded);
}

std::string written_bytes(std::int64_t num_bytes) {
  const auto bytes = static_cast<double>(num_bytes);
  if (bytes < 1e6) return fmt::format("{:.4g} kB", bytes / 1e3);
  return bytes < 1e9 ? written(bytes / 1e6) + " MB" : written(bytes / 1e9) + " GB";
}

}  // namespace echelon
