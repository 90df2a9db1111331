// Figures as people write them in sentences.
#pragma once

#include <string>

namespace echelon {

/// "-1,234,567": a whole number, in groups of three digits.
[[nodiscard]] std::string grouped(double whole);

/// Four significant digits, without an exponent from 0.0001 on: "0.0435", "43.51", "69,590", "218.7 billion".
[[nodiscard]] std::string written(double number);

}  // namespace echelon
