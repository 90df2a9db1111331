// Which rows experts with a capacity keep, on a layout and on one rank. Where rows are dropped by weights, rounding may
// exchange two at the threshold.
#pragma once

#include "ops/operations/mixture/capacity.h"
#include "verify/router/choices.h"

#include <span>

namespace echelon {

/// Of one expert in a sequence: a row that one side keeps, and the other drops.
struct FlippedRow {
  std::int64_t row = 0;  // n k + j of one rank
  bool is_kept_by_layout = false;
  double weight = 0, of_layout = 0;
};
/// Rows that are exchanged for each other.
using FlippedRows = std::vector<FlippedRow>;

/// `on_layout`: the choice of each of one rank's tokens there; null: it has none.
struct KeptRows {
  const LimitExpertsArgs& args;
  std::span<const std::int32_t> chosen, kept;  // [N, k]
  std::span<const double> weights;             // [N, k]; empty: rows are dropped by position
  std::span<const RoutedChoice* const> on_layout;
};
/// By sequence and expert. Experts that one side alone chose are left out.
[[nodiscard]] std::vector<FlippedRows> flipped_rows(const KeptRows& rows);

/// As many rows for as many, with weights that differ by at most `rounding` on either side.
[[nodiscard]] bool are_ties(const FlippedRows& rows, double rounding);

}  // namespace echelon
