// The rows of a mixture's experts on one rank, by token.
#pragma once

#include "verify/combination.h"
#include "verify/finding.h"

#include <map>

namespace echelon {

/// What an expert adds to the output of a token, with its weight.
struct ExpertRow {
  std::int64_t token = 0;
  std::int32_t expert = 0;
  Values values = {};
  /// Of a layout with features of an expert on several ranks: what each of these computes of it, in their order.
  std::vector<Values> addends = {};
};
/// Of each token of the global batch, in the order of its choices.
using ExpertRowsOfTokens = std::map<std::int64_t, std::vector<ExpertRow>>;

/// Of a layer in a step. `router`: the name of its weight. Runs one rank up to the step.
[[nodiscard]] ExpertRowsOfTokens rows_on_one_rank(const Case& at, std::int64_t step, const std::string& router);

}  // namespace echelon
