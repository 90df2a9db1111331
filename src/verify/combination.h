// Which multiples of the given parts a tensor is made of. A sum that was left out, formed twice or weighted wrongly
// shows as coefficients that are not 1: so a fault is named by what it did to the numbers, not by what is expected to
// break.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace echelon {

using Numbers = std::vector<double>;

/// The largest magnitude; 0 of none.
[[nodiscard]] double largest(const Numbers& numbers);

struct Combination {
  std::vector<double> coefficients;  // NaN where the part is zero, so that any multiple would do
  double residual = 0;               // largest |numbers - combination| over the largest |number|
};

/// numbers = sum_i coefficient_i part_i, by least squares. None if the parts do not determine the coefficients (too few
/// numbers, dependent parts).
[[nodiscard]] std::optional<Combination> combine(const Numbers& numbers, const std::vector<Numbers>& parts);

/// |a - b| within `precision` of the larger one and of 1; a NaN is near everything.
[[nodiscard]] bool is_near(double a, double b, double precision);
/// All coefficients are `value`.
[[nodiscard]] bool all_near(const std::vector<double>& coefficients, double value, double precision);

}  // namespace echelon
