#include "verify/router/kept_rows.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

double spread_of(const FlippedRows& rows, double FlippedRow::*weight) {
  const auto [least, most] = std::ranges::minmax_element(rows, {}, weight);
  return (*most).*weight - (*least).*weight;
}

}  // namespace

std::vector<FlippedRows> flipped_rows(const KeptRows& rows) {
  std::map<std::pair<std::int64_t, std::int32_t>, FlippedRows> flipped;
  const auto k = static_cast<std::size_t>(rows.args.kept.size(1));
  for (std::size_t i = 0; i < rows.chosen.size(); ++i) {
    const RoutedChoice* const layout = rows.on_layout[i / k];
    if (layout == nullptr || rows.chosen[i] < 0) continue;
    const auto found = std::ranges::find(layout->experts, rows.chosen[i]);
    if (found == layout->experts.end()) continue;
    const auto j = static_cast<std::size_t>(found - layout->experts.begin());
    const bool is_kept_by_layout = layout->kept[j] >= 0;
    if (is_kept_by_layout == (rows.kept[i] >= 0)) continue;
    FlippedRow row = {.row = static_cast<std::int64_t>(i), .is_kept_by_layout = is_kept_by_layout};
    if (!rows.weights.empty()) {
      row.weight = rows.weights[i];
      row.of_layout = weights_of(layout->token, layout->experts)[j];
    }
    const std::int64_t sequence = static_cast<std::int64_t>(i / k) / rows.args.tokens_per_sequence;
    flipped[{sequence, rows.chosen[i]}].push_back(row);
  }
  std::vector<FlippedRows> all;
  for (auto& [place, of_expert] : flipped) all.push_back(std::move(of_expert));
  return all;
}

bool are_ties(const FlippedRows& rows, double rounding) {
  const auto by_layout = std::ranges::count_if(rows, &FlippedRow::is_kept_by_layout);
  return 2 * by_layout == std::ssize(rows) && spread_of(rows, &FlippedRow::weight) <= rounding &&
         spread_of(rows, &FlippedRow::of_layout) <= rounding;
}

}  // namespace echelon
