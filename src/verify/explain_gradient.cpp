#include "spec/groups.h"
#include "verify/explain.h"
#include "verify/gradient/addend_hypotheses.h"
#include "verify/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

struct FittedPiece {
  int rank = 0;
  std::vector<double> coefficients;
};

/// The hypotheses that fit every wrong piece.
std::vector<Finding> those_that_hold(const std::vector<AddendHypothesis>& hypotheses,
                                     const std::vector<FittedPiece>& pieces, double precision) {
  std::vector<Finding> findings;
  for (const AddendHypothesis& hypothesis : hypotheses) {
    bool holds = true, explains = false;
    for (const FittedPiece& piece : pieces) {
      if (all_near(piece.coefficients, 1.0, precision)) continue;
      explains = true;
      for (std::size_t addend = 0; addend < piece.coefficients.size(); ++addend)
        holds = holds && is_near(piece.coefficients[addend], hypothesis.coefficient(piece.rank, addend), precision);
    }
    if (holds && explains)
      findings.push_back({.kind = hypothesis.kind,
                          .axis = hypothesis.axis,
                          .tensor = {},
                          .where = {},
                          .evidence = hypothesis.evidence});
  }
  return findings;
}

Values taken(const Values& whole, const std::vector<std::int64_t>& indices) {
  Values values;
  values.reserve(indices.size());
  for (const std::int64_t index : indices) values.push_back(whole[static_cast<std::size_t>(index)]);
  return values;
}

std::vector<Finding> by_sequences(const Case& at, const Difference& difference, const TensorPieces& pieces) {
  for (const GradientAddends& list : gradient_addends(at, difference.tensor, difference.step)) {
    std::vector<FittedPiece> fitted;
    bool fits = true;
    for (const RankPiece& piece : pieces.pieces) {
      std::vector<Values> addends;
      for (const Values& gradient : list.gradients) addends.push_back(taken(gradient, piece.indices));
      const auto combination = combine(piece.values, addends);
      if (!combination && piece.values.size() < addends.size() + 2) continue;  // a small part of the tensor
      fits = fits && combination && combination->residual <= at.precision;
      if (fits) fitted.push_back({piece.rank, combination->coefficients});
    }
    if (!fits || fitted.empty()) continue;
    std::vector<AddendHypothesis> hypotheses;
    add_uniform_hypotheses(at, hypotheses);
    add_subset_hypotheses(at, list, hypotheses);
    auto findings = those_that_hold(hypotheses, fitted, at.precision);
    if (!findings.empty()) return findings;
  }
  return {};
}

/// The addends, before any sum, of the ranks that have all elements of `piece`.
std::vector<const RankPiece*> local_addends(const TensorPieces& pieces, const RankPiece& piece) {
  std::vector<const RankPiece*> addends;
  for (const RankPiece& local : pieces.local)
    if (std::ranges::includes(local.indices, piece.indices)) addends.push_back(&local);
  return addends;
}

Values at_indices(const RankPiece& local, const std::vector<std::int64_t>& indices) {
  Values values;
  for (const std::int64_t index : indices)
    values.push_back(
        local.values[static_cast<std::size_t>(std::ranges::lower_bound(local.indices, index) - local.indices.begin())]);
  return values;
}

std::vector<Finding> by_ranks(const Case& at, const Difference& difference, const TensorPieces& pieces) {
  std::vector<AddendHypothesis> hypotheses;
  std::vector<int> rank_of_addend;
  add_rank_hypotheses(at, difference.step, rank_of_addend, hypotheses);
  add_uniform_hypotheses(at, hypotheses);
  std::vector<Finding> findings;
  for (const RankPiece& piece : pieces.pieces) {
    const bool differs =
        std::ranges::any_of(difference.ranks, [&](const RankDifference& rank) { return rank.rank == piece.rank; });
    if (!differs || piece.indices.empty()) continue;
    std::vector<Values> addends;
    rank_of_addend.clear();
    for (const RankPiece* local : local_addends(pieces, piece)) {
      addends.push_back(at_indices(*local, piece.indices));
      rank_of_addend.push_back(local->rank);
    }
    const auto combination = combine(piece.values, addends);
    if (!combination || combination->residual > at.precision) return {};
    const auto found = those_that_hold(hypotheses, {{piece.rank, combination->coefficients}}, at.precision);
    if (!findings.empty() && (found.empty() || found.front().axis != findings.front().axis)) return {};
    findings = found;
    if (findings.empty()) return {};
  }
  return findings;
}

// A gradient shard with wrong boundaries.
std::vector<Finding> by_shift(const Case& at, const Difference& difference, const TensorPieces& pieces) {
  const Values& expected = at.reference.gradient(difference.step, difference.tensor);
  double most = 0;
  for (const double number : expected) most = std::max(most, std::abs(number));
  std::int64_t shift = 0;
  std::vector<int> coordinates;
  for (const RankPiece& piece : pieces.pieces) {
    if (std::ranges::find(difference.ranks, piece.rank, &RankDifference::rank) == difference.ranks.end()) continue;
    const double tolerance = most * at.precision * 1e-2;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < piece.values.size(); ++i)
      if (!(std::abs(piece.values[i] - expected[static_cast<std::size_t>(piece.indices[i])]) <= tolerance))
        places.push_back(i);
    const std::int64_t found = shift_of(piece, places, expected, tolerance);
    if (found == 0 || (shift != 0 && found != shift)) return {};
    shift = found;
    coordinates.push_back(at.mesh().place_in(shard_group, piece.rank).index);
  }
  if (shift == 0) return {};
  return {{.kind = FaultKind::wrong_boundary,
           .axis = at.mesh().group_size(shard_group, 0) > 1 ? shard_axes_of(at.mesh()) : "tp",
           .tensor = {},
           .where = {},
           .evidence = fmt::format("shard {} has the gradient that belongs {} elements {}", coordinates.front(),
                                   std::abs(shift), shift > 0 ? "behind" : "before")}};
}

}  // namespace

std::vector<Finding> explain_gradient(const Case& at, const Difference& difference) {
  const TensorPieces pieces = pieces_of(at, difference.tensor, Quantity::gradient, difference.step);
  std::vector<Finding> findings = by_sequences(at, difference, pieces);
  if (findings.empty()) findings = by_ranks(at, difference, pieces);
  if (findings.empty()) findings = by_shift(at, difference, pieces);
  for (Finding& finding : findings) {
    finding.tensor = difference.tensor;
    finding.where = fmt::format("gradient of step {}, {}", difference.step, describe_place(at, difference));
  }
  return findings;
}

}  // namespace echelon
