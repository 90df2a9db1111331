// Hypotheses about a wrong gradient: how often each of its addends counts where a sum over ranks or microbatches is
// wrong.
#pragma once

#include "verify/gradient/gradient_addends.h"

#include <functional>
#include <string>
#include <vector>

namespace echelon {

/// The coefficients of a hypothetical fault, for the piece of `rank`.
struct AddendHypothesis {
  std::function<double(int rank, std::size_t addend)> coefficient;
  FaultKind kind{};
  std::string axis;
  std::string evidence;
};

/// Sums that were computed n times, or divided by n.
void add_uniform_hypotheses(const Case& at, std::vector<AddendHypothesis>& hypotheses);
/// The addends are subsets of the batch. `list` outlives the hypotheses.
void add_subset_hypotheses(const Case& at, const GradientAddends& list, std::vector<AddendHypothesis>& hypotheses);
/// The addends are what ranks have before any sum: rank_of_addend, which outlives the hypotheses and is read when their
/// coefficients are.
void add_rank_hypotheses(const Case& at, std::int64_t step, const std::vector<int>& rank_of_addend,
                         std::vector<AddendHypothesis>& hypotheses);

/// Each of `degree` parts of an axis divides by its own number of targets.
[[nodiscard]] std::string mean_of_means_evidence(const std::string& axis, int degree, double num_targets);

}  // namespace echelon
