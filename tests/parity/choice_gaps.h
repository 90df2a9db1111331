// How clearly tokens chose their experts: whether rounding could have decided a choice of two runs.
#pragma once

#include "spec/config/run_config.h"
#include "verify/router/choices.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace echelon::testing {

/// The smallest gap between the last value that was chosen and the next, in either run, and the largest difference of
/// such a value between both.
struct Clearness {
  double gap = INFINITY, difference = 0;

  void meet(const Clearness& other) {
    gap = std::min(gap, other.gap);
    difference = std::max(difference, other.difference);
  }
  [[nodiscard]] bool is_clear() const { return gap >= 100 * difference; }
};

/// By what the choice goes: logits, or scores plus bias; scores of groups; and weights, by which experts with a
/// capacity keep rows.
struct ChoiceGaps {
  Clearness experts = {}, groups = {}, rows = {};

  void meet(const ChoiceGaps& other);
};

/// Of all tokens of all steps that both runs have.
[[nodiscard]] ChoiceGaps gaps_of(const echelon::Choices& actual, const echelon::Choices& expected,
                                 const RunConfig& config);
/// "experts 1.2e-05 (difference 3e-16), ..." of those of which there are any.
[[nodiscard]] std::string text_of(const ChoiceGaps& gaps);
/// Rounding decided nothing.
void expect_clear(const ChoiceGaps& gaps);

}  // namespace echelon::testing
