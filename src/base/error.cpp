#include "base/error.h"

#include "base/similar.h"

#include <algorithm>

namespace echelon {

std::string closest_name(std::string_view name, std::span<const std::string_view> candidates) {
  const auto closest = std::min_element(candidates.begin(), candidates.end(), [&](auto x, auto y) {
    return edit_distance(name, x) < edit_distance(name, y);
  });
  return closest == candidates.end() ? std::string() : std::string(*closest);
}

}  // namespace echelon
