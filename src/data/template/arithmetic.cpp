// Arithmetic as Python's, in 64 bits.
#include "data/template/operations.h"

#include <cmath>

namespace echelon::jinja {
namespace {

Value whole_result(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t c = 0;
  bool overflows = false;
  if (sign == "+") overflows = __builtin_add_overflow(a, b, &c);
  if (sign == "-") overflows = __builtin_sub_overflow(a, b, &c);
  if (sign == "*") overflows = __builtin_mul_overflow(a, b, &c);
  if (sign == "//" || sign == "%") {
    require(b != 0, "division by zero");
    if (b == -1) return sign == "%" ? Value(std::int64_t{0}) : whole_result("-", 0, a);
    const std::int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    c = sign == "%" ? a - quotient * b : quotient;
  }
  require(!overflows, "{} {} {} is not in 64 bits", a, sign, b);
  return c;
}

Value real_result(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  require(b != 0, "division by zero");
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
}

Value power(const Value& a, const Value& b, Budget& budget) {
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) {
    const double result = std::pow(a.real(), b.real());
    require(std::isfinite(result), "{} ** {} is not a finite number", a.real(), b.real());
    return result;
  }
  std::int64_t result = 1;
  const bool is_short = a.whole() >= -1 && a.whole() <= 1;  // then only the parity counts
  for (std::int64_t i = 0; i < (is_short ? 2 - b.whole() % 2 - (b.whole() == 0 ? 2 : 0) : b.whole()); ++i) {
    budget.step();
    require(!__builtin_mul_overflow(result, a.whole(), &result), "{} ** {} is not in 64 bits", a.whole(), b.whole());
  }
  return result;
}

}  // namespace

Value arithmetic(std::string_view sign, const Value& a, const Value& b, Budget& budget) {
  if (sign == "**") return power(a, b, budget);
  if (a.is_whole() && b.is_whole() && sign != "/") return whole_result(sign, a.whole(), b.whole());
  return real_result(sign, a.real(), b.real());
}

}  // namespace echelon::jinja
