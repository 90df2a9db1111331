// A run of a sequence's positions that one rank holds.
#pragma once

#include <cstdint>

namespace echelon {

/// Positions [first, end) are on `rank`.
struct TokenRun {
  std::int32_t first = 0, end = 0, rank = 0;
};

}  // namespace echelon
