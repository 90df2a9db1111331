// Rows of settings in which every allowed pair occurs: drawn from a seed, so that a row can be drawn again.
#pragma once

#include "parity/sweep/axes.h"

#include <map>
#include <optional>
#include <random>
#include <utility>

namespace echelon::testing {

struct Place {
  std::size_t axis = 0, setting = 0;
  auto operator<=>(const Place&) const = default;
};
using Pair = std::pair<Place, Place>;  // of two axes, in their order

/// Every pair of settings of two axes that no rule refuses.
[[nodiscard]] std::vector<Pair> allowed_pairs(const SweepTable& table);
[[nodiscard]] std::string name_of(const SweepTable& table, const Pair& pair);

/// How many rows have it.
[[nodiscard]] std::map<Pair, int> occurrences(const std::vector<SweepRow>& rows);

/// Rows that no rule refuses, on 16 ranks at most; in them every allowed pair occurs `times`. A pair for which there is
/// no such row is missing in them.
[[nodiscard]] std::vector<SweepRow> draw_rows(const SweepTable& table, unsigned seed, int times);

/// A few of the rows, by their index, in which every setting occurs.
[[nodiscard]] std::vector<std::size_t> rows_with_every_setting(const SweepTable& table,
                                                               const std::vector<SweepRow>& rows);

/// Settings of the axes that have none yet: of those that go with the others the first. Nothing if there are none.
[[nodiscard]] std::optional<Settings> plainest_with(const SweepTable& table, Settings settings);

}  // namespace echelon::testing
