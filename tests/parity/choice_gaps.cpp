#include "parity/choice_gaps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace echelon::testing {
namespace {

/// What a choice of a token goes by.
struct Decisive {
  std::vector<double> of_experts, of_groups;
};

Decisive decisive_of(const RoutedToken& token) {
  const RouterRule& rule = token.rule;
  const bool adds_two = rule.group_score == GroupScore::sum_of_two && rule.num_groups > 1;
  Decisive values = {token.logits, {}};
  if (!token.bias.empty() || adds_two) {
    double sum = 0;
    for (const double z : token.logits) sum += std::exp(z);
    for (std::size_t e = 0; e < token.logits.size(); ++e) {
      const double z = token.logits[e];
      values.of_experts[e] = rule.scores == ExpertScores::softmax ? std::exp(z) / sum : 1 / (1 + std::exp(-z));
      if (!token.bias.empty()) values.of_experts[e] += token.bias[e];
    }
  }
  const auto size = std::ssize(values.of_experts) / rule.num_groups;
  for (auto first = values.of_experts.begin(); first != values.of_experts.end(); first += size) {
    std::vector<double> group(first, first + size);
    std::ranges::sort(group, std::greater());
    values.of_groups.push_back(group[0] + (adds_two ? group[1] : 0));
  }
  return values;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// Between the `count` largest values and the others.
double gap_after(std::vector<double> values, std::int64_t count) {
  if (count >= std::ssize(values)) return INFINITY;
  std::ranges::sort(values, std::greater());
  return values[static_cast<std::size_t>(count - 1)] - values[static_cast<std::size_t>(count)];
}

/// Those of the groups that are chosen first.
std::vector<double> open_to_choice(const Decisive& values, const RouterRule& rule) {
  if (rule.num_chosen_groups == rule.num_groups) return values.of_experts;
  std::vector<double> sorted = values.of_groups, open;
  std::ranges::sort(sorted, std::greater());
  const double last = sorted[static_cast<std::size_t>(rule.num_chosen_groups - 1)];
  const std::size_t size = values.of_experts.size() / values.of_groups.size();
  for (std::size_t e = 0; e < values.of_experts.size(); ++e)
    if (values.of_groups[e / size] >= last) open.push_back(values.of_experts[e]);
  return open;
}

ChoiceGaps gaps_of(const RoutedChoice& actual, const RoutedChoice& expected) {
  const Decisive values[] = {decisive_of(actual.token), decisive_of(expected.token)};
  ChoiceGaps gaps;
  gaps.experts.difference = largest_difference(values[0].of_experts, values[1].of_experts);
  gaps.groups.difference = largest_difference(values[0].of_groups, values[1].of_groups);
  const RouterRule& rule = expected.token.rule;
  for (const Decisive& each : values) {
    gaps.experts.meet({gap_after(open_to_choice(each, rule), std::ssize(expected.experts)), 0});
    gaps.groups.meet({gap_after(each.of_groups, rule.num_chosen_groups), 0});
  }
  return gaps;
}

/// Of the rows of an expert in a sequence, the smallest weight that is kept and the largest that is dropped.
struct Threshold {
  double kept = INFINITY, dropped = -INFINITY;

  void add(double weight, bool is_kept) {
    if (is_kept)
      kept = std::min(kept, weight);
    else
      dropped = std::max(dropped, weight);
  }
};

/// Rows that a layer's experts keep of a sequence.
class KeptWeights {
 public:
  void add(const RoutedChoice& actual, const RoutedChoice& expected) {
    const std::vector<double> weights = weights_of(expected.token, expected.experts),
                              of_layout = weights_of(actual.token, actual.experts);
    for (std::size_t j = 0; j < expected.experts.size(); ++j) {
      const std::int32_t expert = expected.experts[j];
      thresholds_[expert].add(weights[j], expected.kept[j] >= 0);
      const auto found = std::ranges::find(actual.experts, expert);
      if (found == actual.experts.end()) continue;
      const auto i = static_cast<std::size_t>(found - actual.experts.begin());
      of_layout_[expert].add(of_layout[i], actual.kept[i] >= 0);
      difference_ = std::max(difference_, std::abs(of_layout[i] - weights[j]));
    }
  }
  [[nodiscard]] Clearness clearness() const {
    Clearness all = {INFINITY, difference_};
    for (const auto& of_experts : {thresholds_, of_layout_})
      for (const auto& [expert, threshold] : of_experts)
        all.gap = std::min(all.gap, threshold.kept - threshold.dropped);
    return all;
  }

 private:
  std::map<std::int32_t, Threshold> thresholds_, of_layout_;
  double difference_ = 0;
};

bool drops_by_score(const MoeConfig& moe) { return moe.capacity_order == CapacityOrder::score; }

}  // namespace

void ChoiceGaps::meet(const ChoiceGaps& other) {
  experts.meet(other.experts);
  groups.meet(other.groups);
  rows.meet(other.rows);
}

ChoiceGaps gaps_of(const echelon::Choices& actual, const echelon::Choices& expected, const RunConfig& config) {
  const TrainingConfig& t = config.training;
  ChoiceGaps gaps;
  for (std::int64_t step = 1; step <= t.steps; ++step)
    for (std::int64_t layer = 0; layer < config.model.num_hidden_layers; ++layer)
      for (std::int64_t sequence = 0; sequence < t.global_batch_size; ++sequence) {
        KeptWeights kept;
        for (std::int64_t i = 0; i < t.seq_len; ++i) {
          const ChoicePlace place = {step, fmt::format("model.layers.{}.mlp.gate.weight", layer),
                                     sequence * t.seq_len + i};
          const RoutedChoice *const a = actual.at(place), *const b = expected.at(place);
          if (a == nullptr || b == nullptr || b->experts.front() < 0) continue;  // a dense layer, or padding
          gaps.meet(gaps_of(*a, *b));
          if (drops_by_score(config.moe)) kept.add(*a, *b);
        }
        gaps.rows.meet(kept.clearness());
      }
  return gaps;
}

std::string text_of(const ChoiceGaps& gaps) {
  std::string text;
  for (const auto& [name, of] : {std::pair{"experts", gaps.experts}, {"groups", gaps.groups}, {"rows", gaps.rows}})
    if (std::isfinite(of.gap))
      text += fmt::format("{}{} {:.1e} (difference {:.1e})", text.empty() ? "" : ", ", name, of.gap, of.difference);
  return text;
}

void expect_clear(const ChoiceGaps& gaps) {
  const bool is_clear = gaps.experts.is_clear() && gaps.groups.is_clear() && gaps.rows.is_clear();
  EXPECT_TRUE(is_clear) << "rounding may decide a choice; smallest gaps: " << text_of(gaps);
}

}  // namespace echelon::testing
