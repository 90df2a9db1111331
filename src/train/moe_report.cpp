#include "train/moe_report.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

/// The largest of `num_parts` equal parts of the loads over their mean.
template <class Iterator>
double largest_over_mean(Iterator begin, Iterator end, std::int64_t num_parts) {
  const double all = std::accumulate(begin, end, 0.0);
  if (all == 0) return 1;
  double largest = 0;
  for (const auto size = (end - begin) / num_parts; begin != end; begin += size)
    largest = std::max(largest, std::accumulate(begin, begin + size, 0.0));
  return largest * static_cast<double>(num_parts) / all;
}

}  // namespace

std::optional<MoeReport> moe_report(const Step& step, const RunConfig& config) {
  const MixtureSpec& mixture = config.model.mixture;
  const std::int64_t ep = config.parallelism.expert_parallel_degree;
  const std::vector<double>& sums = step.router_sums();
  if (sums.empty()) return std::nullopt;
  const RouterSums columns = {mixture.num_experts};
  MoeReport report = {.is_forced = config.moe.force_balance};
  for (auto row = sums.begin(); row != sums.end(); row += columns.num_columns()) {
    const auto end = row + columns.num_experts;
    report.max_load.push_back(largest_over_mean(row, end, mixture.num_experts));
    if (ep > 1) report.max_rank_load.push_back(largest_over_mean(row, end, ep));
    if (config.metrics.expert_loads) report.loads.emplace_back(row, end);
    report.idle_experts.push_back(std::count(row, end, 0.0));
    report.dropped_rows.push_back(static_cast<std::int64_t>(row[columns.num_dropped()]));
    report.seq_aux_loss.push_back(row[columns.losses()]);
    report.global_aux_loss.push_back(row[columns.losses() + 1]);
    report.z_loss.push_back(row[columns.losses() + 2]);
  }
  const std::vector<float>& bias = step.router_bias();
  for (auto row = bias.begin(); row != bias.end(); row += mixture.num_experts) {
    report.least_bias.push_back(*std::min_element(row, row + mixture.num_experts));
    report.most_bias.push_back(*std::max_element(row, row + mixture.num_experts));
  }
  const std::vector<double>& counts = step.exchange_counts();
  for (auto row = counts.begin(); row != counts.end(); row += ExchangeCounts::num_columns) {
    report.rounds.push_back(row[ExchangeCounts::num_rounds] / row[ExchangeCounts::num_exchanges]);
    report.rows_again.push_back(static_cast<std::int64_t>(row[ExchangeCounts::rows_again]));
  }
  return report;
}

}  // namespace echelon
