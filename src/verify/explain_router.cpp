// Explains what routers counted, and their losses and biases, next to one rank's: sums over all tokens of a step.
#include "verify/explain.h"

#include "verify/router_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {
namespace {

constexpr const char* loss_names[] = {"seq_aux_loss", "global_aux_loss", "z_loss"};
static_assert(std::size(loss_names) == num_router_losses);

Finding finding_of(FaultKind kind, const Difference& difference, std::string axis, std::string evidence) {
  return {.kind = kind,
          .axis = std::move(axis),
          .tensor = difference.tensor,
          .where = fmt::format("router of step {}", difference.step),
          .evidence = std::move(evidence)};
}

/// n if all counts are n times the expected ones; else 0.
int multiple_of(std::span<const double> counts, std::span<const double> expected) {
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0),
               n = total > 0 ? std::accumulate(counts.begin(), counts.end(), 0.0) / total : 0;
  if (n != std::floor(n)) return 0;
  for (std::size_t e = 0; e < counts.size(); ++e)
    if (counts[e] != n * expected[e]) return 0;
  return static_cast<int>(n);
}

Finding of_counts(const Difference& difference, std::span<const double> counts, std::span<const double> expected) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0),
               of_one = std::accumulate(expected.begin(), expected.end(), 0.0);
  if (const int n = multiple_of(counts, expected); n > 1)
    return finding_of(FaultKind::repeated_counts, difference, "",
                      fmt::format("the rows of each expert count {} times: in more than one pass, or on ranks with the "
                                  "same tokens",
                                  n));
  if (total < of_one)
    return finding_of(
        FaultKind::lost_counts, difference, "",
        fmt::format("{} of {} rows of its experts are counted: ranks or microbatches are missing", total, of_one));
  return finding_of(
      FaultKind::wrong_counts, difference, "",
      fmt::format("{} rows of its experts are counted, and {} on one rank, for other experts", total, of_one));
}

}  // namespace

std::vector<Finding> explain_router(const Case& at, const Difference& difference) {
  const RouterValues& wrong = at.routers.at({difference.step, difference.ranks.front().rank});
  const ReferenceStep& right = at.reference.step(difference.step);
  const RouterRow actual = router_row(at.reference, wrong, difference.tensor),
                  expected = router_row(at.reference, right.routers, difference.tensor);
  if (!std::ranges::equal(actual.counts, expected.counts))
    return {of_counts(difference, actual.counts, expected.counts)};
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < actual.losses.size(); ++i) {
    if (std::abs(actual.losses[i] - expected.losses[i]) <= at.tolerance * std::abs(expected.losses[i])) continue;
    findings.push_back(finding_of(
        FaultKind::wrong_router_loss, difference, "",
        fmt::format("{} is {:.6g} instead of {:.6g}, with the right choices and counts{}", loss_names[i],
                    actual.losses[i], expected.losses[i], i == 0 ? ": the loss is not of whole sequences" : "")));
  }
  for (std::size_t e = 0; findings.empty() && e < actual.bias.size(); ++e)
    if (actual.bias[e] != expected.bias[e])
      findings.push_back(finding_of(
          FaultKind::wrong_bias, difference, "",
          fmt::format("the bias of expert {} is {:.6g} instead of {:.6g}, with the right counts of all ranks: they did "
                      "not decide",
                      e, actual.bias[e], expected.bias[e])));
  return findings;
}

}  // namespace echelon
