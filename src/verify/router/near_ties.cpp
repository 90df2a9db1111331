#include "verify/router/near_ties.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

std::vector<double> scores_of(const RoutedToken& token) {
  std::vector<double> scores = token.logits;
  const double max = *std::ranges::max_element(scores);
  const bool is_softmax = token.rule.scores == ExpertScores::softmax;
  double sum = 0;
  for (double& each : scores) sum += each = is_softmax ? std::exp(each - max) : 1 / (1 + std::exp(-each));
  for (double& each : scores) each /= is_softmax ? sum : 1;
  return scores;
}

bool adds_of_groups(const RouterRule& rule) {
  return rule.group_score == GroupScore::sum_of_two && rule.num_groups > 1;
}

/// What the choice goes by.
std::vector<double> values_of(const RoutedToken& token) {
  if (token.bias.empty() && !adds_of_groups(token.rule)) return token.logits;
  std::vector<double> values = scores_of(token);
  for (std::size_t e = 0; e < token.bias.size(); ++e) values[e] += token.bias[e];
  return values;
}

std::size_t group_of(const RoutedToken& token, std::int32_t expert) {
  return static_cast<std::size_t>(expert) * static_cast<std::size_t>(token.rule.num_groups) / token.logits.size();
}

std::vector<double> values_of_groups(const RoutedToken& token, const std::vector<double>& values) {
  const auto groups = static_cast<std::size_t>(token.rule.num_groups);
  const auto size = static_cast<std::ptrdiff_t>(values.size() / groups);
  std::vector<double> of_groups;
  for (std::size_t g = 0; g < groups; ++g) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(g) * size;
    std::vector<double> members(first, first + size);
    std::ranges::sort(members, std::greater());
    of_groups.push_back(members[0] + (adds_of_groups(token.rule) ? members[1] : 0));
  }
  return of_groups;
}

}  // namespace

double gap_between(const RoutedToken& token, std::span<const std::int32_t> chosen,
                   std::span<const std::int32_t> other) {
  const std::vector<double> values = values_of(token), of_groups = values_of_groups(token, values);
  const auto is_in = [](std::span<const std::int32_t> list, std::int32_t expert) {
    return std::ranges::find(list, expert) != list.end();
  };
  double gap = 0;
  for (const std::int32_t mine : chosen)
    for (const std::int32_t theirs : other) {
      if (is_in(other, mine) || is_in(chosen, theirs)) continue;
      if (theirs < 0 || theirs >= std::ssize(values)) return std::numeric_limits<double>::infinity();
      const std::size_t group = group_of(token, mine), their_group = group_of(token, theirs);
      const double of_experts =
                       std::abs(values[static_cast<std::size_t>(mine)] - values[static_cast<std::size_t>(theirs)]),
                   of_their_groups = std::abs(of_groups[group] - of_groups[their_group]);
      gap = std::max(gap, group == their_group ? of_experts : std::min(of_experts, of_their_groups));
    }
  return gap;
}

double largest_score(const RoutedToken& token) {
  double largest = 1;
  for (const double value : values_of(token)) largest = std::max(largest, std::abs(value));
  return largest;
}

std::vector<double> weights_of(const RoutedToken& token, std::span<const std::int32_t> experts) {
  const std::vector<double> scores = scores_of(token);
  std::vector<double> weights;
  double sum = 1e-20;
  for (const std::int32_t expert : experts) {
    weights.push_back(scores[static_cast<std::size_t>(expert)]);
    sum += weights.back();
  }
  for (double& weight : weights) weight *= token.rule.scale / (token.rule.normalises ? sum : 1);
  return weights;
}

}  // namespace echelon
