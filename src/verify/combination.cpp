#include "verify/combination.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void subtract(Values& a, double factor, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= factor * b[i];
}

constexpr double dependent = 1e-7;  // relative length of a part's remainder after projecting out the others

/// Orthonormal columns q and the triangle r with part_j = sum_i q_i r_ij (modified Gram-Schmidt, each part twice).
struct Factors {
  std::vector<Values> q;
  std::vector<Values> r;  // [j][i], i <= j
};

std::optional<Factors> factorised(const std::vector<const Values*>& parts) {
  Factors factors;
  for (const Values* part : parts) {
    Values rest = *part, row(factors.q.size() + 1);
    const double length = std::sqrt(dot(rest, rest));
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < factors.q.size(); ++i) {
        const double component = dot(factors.q[i], rest);
        row[i] += component;
        subtract(rest, component, factors.q[i]);
      }
    const double left = std::sqrt(dot(rest, rest));
    if (left <= dependent * length) return std::nullopt;
    row.back() = left;
    for (double& number : rest) number /= left;
    factors.q.push_back(std::move(rest));
    factors.r.push_back(std::move(row));
  }
  return factors;
}

}  // namespace

double largest(const Values& values) {
  double most = 0;
  for (const double number : values) most = std::max(most, std::abs(number));
  return most;
}

std::optional<Combination> combine(const Values& values, const std::vector<Values>& parts) {
  std::vector<const Values*> nonzero;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (largest(parts[i]) == 0) continue;
    nonzero.push_back(&parts[i]);
    places.push_back(i);
  }
  // Two more equations than unknowns, so that a fit is significant.
  if (nonzero.empty() || values.size() < nonzero.size() + 2) return std::nullopt;
  const auto factors = factorised(nonzero);
  if (!factors) return std::nullopt;

  const std::size_t n = nonzero.size();
  Values projected(n), solution(n), rest = values;
  for (std::size_t i = 0; i < n; ++i) {
    projected[i] = dot(factors->q[i], rest);
    subtract(rest, projected[i], factors->q[i]);
  }
  for (std::size_t i = n; i-- > 0;) {
    double sum = projected[i];
    for (std::size_t j = i + 1; j < n; ++j) sum -= factors->r[j][i] * solution[j];
    solution[i] = sum / factors->r[i][i];
  }
  Combination combination = {.coefficients =
                                 std::vector<double>(parts.size(), std::numeric_limits<double>::quiet_NaN())};
  for (std::size_t i = 0; i < n; ++i) combination.coefficients[places[i]] = solution[i];
  combination.residual = largest(rest) / std::max(largest(values), std::numeric_limits<double>::min());
  return combination;
}

bool is_near(double a, double b, double precision) {
  return std::isnan(a) || std::isnan(b) || std::abs(a - b) <= precision * std::max({std::abs(a), std::abs(b), 1.0});
}

bool all_near(const std::vector<double>& coefficients, double value, double precision) {
  return std::ranges::all_of(coefficients, [&](double coefficient) { return is_near(coefficient, value, precision); });
}

}  // namespace echelon
