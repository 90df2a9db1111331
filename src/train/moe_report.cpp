#include "train/moe_report.h"

#include <algorithm>
#include <numeric>

namespace echelon {

std::optional<MoeReport> moe_report(const Step& step, const MixtureSpec& mixture, bool lists_loads) {
  const std::vector<double>& sums = step.router_sums();
  if (sums.empty()) return std::nullopt;
  const RouterSums columns = {mixture.num_experts};
  MoeReport report;
  for (auto row = sums.begin(); row != sums.end(); row += columns.num_columns()) {
    const auto end = row + columns.num_experts;
    const double all = std::accumulate(row, end, 0.0);
    report.max_load.push_back(all == 0 ? 1
                                       : *std::max_element(row, end) * static_cast<double>(mixture.num_experts) / all);
    if (lists_loads) report.loads.emplace_back(row, end);
    report.idle_experts.push_back(std::count(row, end, 0.0));
    report.dropped_rows.push_back(static_cast<std::int64_t>(row[columns.num_dropped()]));
    report.seq_aux_loss += row[columns.losses()];
    report.global_aux_loss += row[columns.losses() + 1];
    report.z_loss += row[columns.losses() + 2];
  }
  const std::vector<float>& bias = step.router_bias();
  for (auto row = bias.begin(); row != bias.end(); row += mixture.num_experts) {
    report.least_bias.push_back(*std::min_element(row, row + mixture.num_experts));
    report.most_bias.push_back(*std::max_element(row, row + mixture.num_experts));
  }
  return report;
}

}  // namespace echelon
