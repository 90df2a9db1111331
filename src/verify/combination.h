// Fits a tensor as a linear combination of given parts. A sum that is missing, computed twice or weighted wrongly gives
// coefficients other than 1. Faults are therefore named by their effect on the values, not by expected causes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace echelon {

using Values = std::vector<double>;

/// The largest magnitude; 0 of none.
[[nodiscard]] double largest(const Values& values);

struct Combination {
  std::vector<double> coefficients;  // NaN if the part is zero, so that any multiple fits
  double residual = 0;               // largest |value - combination| over the largest |value|
};

/// values = sum_i coefficient_i part_i, by least squares. None if the parts do not determine the coefficients (too few
/// values, dependent parts).
[[nodiscard]] std::optional<Combination> combine(const Values& values, const std::vector<Values>& parts);

/// |a - b| within `precision` of the larger one and of 1. NaN is close to everything.
[[nodiscard]] bool is_near(double a, double b, double precision);
/// All coefficients are `value`.
[[nodiscard]] bool all_near(const std::vector<double>& coefficients, double value, double precision);

}  // namespace echelon
