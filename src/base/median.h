// Median of measurements.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace echelon {

/// The median of one value or more; the larger of the two middle values if their count is even.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace echelon
