// The middle of measurements.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace echelon {

/// The one in the middle of one value or more; of an even number of them the larger of the two.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace echelon
