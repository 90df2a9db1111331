// Rows of a matrix in parts.
#pragma once

#include "comm/comm.h"

#include <algorithm>
#include <vector>

namespace echelon {

[[nodiscard]] inline std::int64_t sum_of(const std::vector<RowPart>& parts) {
  std::int64_t rows = 0;
  for (const RowPart& part : parts) rows += part.count;
  return rows;
}

/// Without the rank's own.
[[nodiscard]] inline std::int64_t sum_of_others(const std::vector<RowPart>& parts, int own) {
  return parts.empty() ? 0 : sum_of(parts) - parts[static_cast<std::size_t>(own)].count;
}

/// Parts after each other, up to `most` rows.
[[nodiscard]] inline std::vector<RowPart> in_a_row(const std::vector<std::int64_t>& counts, std::int64_t most) {
  std::vector<RowPart> parts;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    parts.push_back({first, std::min(count, most - first)});
    first += parts.back().count;
  }
  return parts;
}

}  // namespace echelon
