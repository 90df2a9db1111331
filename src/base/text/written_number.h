// Figures as people write them in sentences.
#pragma once

#include <cstdint>
#include <string>

namespace echelon {

/// "-1,234,567": a whole number, in groups of three digits.
[[nodiscard]] std::string grouped(double whole);

/// Four significant digits, without an exponent from 0.0001 on: "0.0435", "43.51", "69,590", "218.7 billion".
[[nodiscard]] std::string written(double number);

/// "4.096 kB", "847.8 MB", "12,350 GB".
[[nodiscard]] std::string written_bytes(std::int64_t num_bytes);

}  // namespace echelon
