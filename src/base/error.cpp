#include "base/error.h"

#include "base/text/similar.h"

#include <algorithm>

namespace echelon {
namespace {

std::string without_zeros(const std::string& sentence) {
  std::string out;
  for (const char c : sentence) {
    if (c == '\0')
      out += "\\x00";
    else
      out += c;
  }
  return out;
}

}  // namespace

Error::Error(const std::string& sentence, ExitStatus status)
    : std::runtime_error(without_zeros(sentence)), status_(status) {}

std::string closest_name(std::string_view name, std::span<const std::string_view> candidates) {
  const auto closest = std::min_element(candidates.begin(), candidates.end(), [&](auto x, auto y) {
    return edit_distance(name, x) < edit_distance(name, y);
  });
  return closest == candidates.end() ? std::string() : std::string(*closest);
}

}  // namespace echelon
