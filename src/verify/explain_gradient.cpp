#include "blueprint/batch_layout.h"
#include "nn/head_split.h"
#include "spec/groups.h"
#include "tensor/tokens.h"
#include "verify/context/token_places.h"
#include "verify/explain.h"
#include "verify/gradient_addends.h"
#include "verify/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace echelon {
namespace {

/// The coefficients of a hypothetical fault, for the piece of `rank`.
struct Hypothesis {
  std::function<double(int rank, std::size_t addend)> coefficient;
  FaultKind kind{};
  std::string axis;
  std::string evidence;
};

struct FittedPiece {
  int rank = 0;
  std::vector<double> coefficients;
};

/// The hypotheses that fit every wrong piece.
std::vector<Finding> those_that_hold(const std::vector<Hypothesis>& hypotheses, const std::vector<FittedPiece>& pieces,
                                     double precision) {
  std::vector<Finding> findings;
  for (const Hypothesis& hypothesis : hypotheses) {
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

// Sums over an axis that were computed n times, or divided by n. The two stages of a tied weight and the ranks that
// share a kv head are part of their axis.
void add_uniform_hypotheses(const Case& at, std::vector<Hypothesis>& hypotheses) {
  std::vector<LayoutAxis> axes = axes_of(at.config());
  const ModelSpec& model = at.config().model;
  if (model.tie_word_embeddings && at.mesh().degree(Axis::pp) > 2) axes.push_back({"pp", 2});
  const auto replicas = static_cast<int>(kv_replicas(model, at.mesh().degree(Axis::tp)));
  if (replicas > 1 && replicas < at.mesh().degree(Axis::tp)) axes.push_back({"tp", replicas});
  for (const LayoutAxis& axis : axes) {
    const double n = axis.degree;
    const bool is_count = axis.name == "microbatches";
    hypotheses.push_back(
        {[n](int, std::size_t) { return n; }, is_count ? FaultKind::repeated_microbatches : FaultKind::repeated_sum,
         axis.name,
         fmt::format("it is {} times one rank's, the number of ranks of a sum over {}: summed, and summed once more", n,
                     axis.name)});
    hypotheses.push_back(
        {[n](int, std::size_t) { return 1 / n; }, FaultKind::mean_for_sum, axis.name,
         fmt::format("it is one rank's divided by {}, the number of ranks of a sum over {}: a mean where a sum belongs",
                     n, axis.name)});
  }
}

void add_replica_hypotheses(const Case& at, const GradientAddends& list, std::vector<Hypothesis>& hypotheses) {
  const BatchLayout layout(at.config());
  const bool has_replicates = at.mesh().degree(Axis::dp_replicate) > 1,
             has_shards = at.mesh().degree(Axis::dp_shard) > 1;
  const auto add_own = [&](std::string axis, const std::function<int(int)>& coordinate_of_replica) {
    hypotheses.push_back(
        {[&list, layout, coordinate_of_replica](int rank, std::size_t addend) {
           return coordinate_of_replica(list.subsets[addend].replica) == coordinate_of_replica(layout.replica_of(rank))
                      ? 1.0
                      : 0.0;
         },
         FaultKind::missing_sum, axis,
         fmt::format("each rank has the gradient of its own sequences alone: it was not summed over {}", axis)});
  };
  const auto along = [&](Axis axis) {
    return [layout, axis](int replica) { return layout.coordinate_of(replica, axis); };
  };
  if (has_replicates) add_own("dp_replicate", along(Axis::dp_replicate));
  if (has_shards) add_own("dp_shard", along(Axis::dp_shard));
  if (has_replicates && has_shards) add_own("dp_replicate+dp_shard", [](int replica) { return replica; });
  const std::string all = has_replicates && has_shards ? "dp_replicate+dp_shard"
                          : has_replicates             ? "dp_replicate"
                                                       : "dp_shard";
  for (int lost = 0; lost < layout.num_replicas(); ++lost)
    hypotheses.push_back(
        {[&list, lost](int, std::size_t addend) { return list.subsets[addend].replica == lost ? 0.0 : 1.0; },
         FaultKind::missing_sum, all, fmt::format("what data rank {} computed is missing from the sum", lost)});
}

void add_microbatch_hypotheses(const Case& at, const GradientAddends& list, std::vector<Hypothesis>& hypotheses) {
  const int M = BatchLayout(at.config()).num_microbatches();
  for (int m = M - 1; m >= 0; --m)
    hypotheses.push_back(
        {[&list, m](int, std::size_t addend) { return list.subsets[addend].microbatch == m ? 1.0 : 0.0; },
         FaultKind::lost_microbatches, "microbatches",
         fmt::format("it is the gradient of {} of {} microbatches alone",
                     m == M - 1 ? "the last" : fmt::format("microbatch {}", m), M)});
  for (int m = 0; m < M; ++m) {
    hypotheses.push_back(
        {[&list, m](int, std::size_t addend) { return list.subsets[addend].microbatch == m ? 0.0 : 1.0; },
         FaultKind::lost_microbatches, "microbatches", fmt::format("microbatch {} of {} is missing from it", m, M)});
    hypotheses.push_back(
        {[&list, m](int, std::size_t addend) { return list.subsets[addend].microbatch == m ? 2.0 : 1.0; },
         FaultKind::repeated_microbatches, "microbatches", fmt::format("microbatch {} of {} is added twice", m, M)});
  }
  hypotheses.push_back(
      {[&list, M](int, std::size_t addend) { return std::exp2(M - 1 - list.subsets[addend].microbatch); },
       FaultKind::repeated_microbatches, "microbatches",
       "it doubles from microbatch to microbatch: what was accumulated is added to itself"});
}

/// An axis of a batch with more than one part: which part a subset is of.
struct BatchAxis {
  std::string name;
  int degree = 1;
  std::function<int(const BatchSubset&)> part_of;
};

std::vector<BatchAxis> batch_axes_of(const Case& at, const GradientAddends& list) {
  const BatchLayout layout(at.config());
  std::vector<BatchAxis> axes;
  for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard})
    if (list.has_replicas && at.mesh().degree(axis) > 1)
      axes.push_back({std::string(name_of(axis)), at.mesh().degree(axis), [layout, axis](const BatchSubset& subset) {
                        return layout.coordinate_of(subset.replica, axis);
                      }});
  if (list.has_parts)
    axes.push_back({"cp", at.mesh().degree(Axis::cp), [](const BatchSubset& subset) { return subset.part; }});
  if (list.has_microbatches)
    axes.push_back(
        {"microbatches", layout.num_microbatches(), [](const BatchSubset& subset) { return subset.microbatch; }});
  return axes;
}

/// Several axes as one.
BatchAxis joined(const std::vector<BatchAxis>& axes) {
  BatchAxis joint = {.name = "", .degree = 1, .part_of = [](const BatchSubset&) { return 0; }};
  for (const BatchAxis& axis : axes) {
    joint.name += (joint.name.empty() ? "" : "+") + axis.name;
    joint.part_of = [outer = joint.part_of, axis](const BatchSubset& subset) {
      return outer(subset) * axis.degree + axis.part_of(subset);
    };
    joint.degree *= axis.degree;
  }
  return joint;
}

std::string mean_of_means_evidence(const std::string& axis, int degree, double num_targets) {
  return fmt::format(
      "each part of {} is divided by its own number of targets and the {} means are averaged, instead of all by the "
      "{:.0f} targets of the global batch",
      axis, degree, num_targets);
}

// Each part of an axis, or of several, divided by its own number of targets instead of its share of all.
void add_mean_of_means(const Case& at, const GradientAddends& list, std::vector<Hypothesis>& hypotheses) {
  const std::vector<BatchAxis> axes = batch_axes_of(at, list);
  double total = 0;
  for (const double count : list.num_targets) total += count;
  for (unsigned chosen = 1; chosen < 1U << axes.size(); ++chosen) {
    std::vector<BatchAxis> some;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if ((chosen >> i & 1U) != 0) some.push_back(axes[i]);
    const BatchAxis axis = joined(some);
    std::vector<double> counts(static_cast<std::size_t>(axis.degree));
    for (std::size_t addend = 0; addend < list.subsets.size(); ++addend)
      counts[static_cast<std::size_t>(axis.part_of(list.subsets[addend]))] += list.num_targets[addend];
    hypotheses.push_back({[&list, counts, total, axis](int, std::size_t addend) {
                            const double count = counts[static_cast<std::size_t>(axis.part_of(list.subsets[addend]))];
                            return count > 0 ? total / (axis.degree * count) : 0;
                          },
                          FaultKind::mean_of_means, axis.name, mean_of_means_evidence(axis.name, axis.degree, total)});
  }
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
    std::vector<Hypothesis> hypotheses;
    add_uniform_hypotheses(at, hypotheses);
    if (list.has_microbatches) add_microbatch_hypotheses(at, list, hypotheses);
    if (list.has_replicas) add_replica_hypotheses(at, list, hypotheses);
    add_mean_of_means(at, list, hypotheses);
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

/// The targets of each rank in a step.
std::vector<double> targets_of_ranks(const Case& at, std::int64_t step) {
  const TokenPlaces places(at.config(), at.batches, step);
  const std::int64_t T = at.config().training.seq_len, batch = at.config().training.global_batch_size;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(T)), targets(tokens.size()), all;
  for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
    at.batches.read((step - 1) * batch + sequence, T, tokens.data(), targets.data());
    all.insert(all.end(), targets.begin(), targets.end());
  }
  std::vector<double> counts(static_cast<std::size_t>(at.mesh().num_ranks()));
  for (int rank = 0; rank < at.mesh().num_ranks(); ++rank)
    for (int m = 0; m < at.config().num_microbatches(); ++m)
      for (const std::int64_t token : places.tokens_of(places.place_of(rank, m)))
        if (token != no_token && all[static_cast<std::size_t>(token)] != ignored_target)
          ++counts[static_cast<std::size_t>(rank)];
  return counts;
}

// Sums over one axis, or over several together, that each rank lacks.
void add_rank_hypotheses(const Case& at, const std::vector<int>& rank_of_addend, std::vector<Hypothesis>& hypotheses) {
  const MeshShape& mesh = at.mesh();
  const auto add = [&](const std::string& name, const std::vector<Axis>& axes) {
    if (std::ranges::any_of(axes, [&](Axis axis) { return mesh.degree(axis) == 1; })) return;
    hypotheses.push_back(
        {[&rank_of_addend, &mesh, axes](int rank, std::size_t addend) {
           return std::ranges::all_of(axes,
                                      [&](Axis axis) {
                                        return mesh.coordinate(rank_of_addend[addend], axis) ==
                                               mesh.coordinate(rank, axis);
                                      })
                      ? 1.0
                      : 0.0;
         },
         FaultKind::missing_sum, name,
         fmt::format("each rank has the part that it computed itself: the parts were not summed over {}{}", name,
                     name == "pp" ? ", where the first and the last stage hold the tied weight" : "")});
  };
  add("tp", {Axis::tp});
  add("pp", {Axis::pp});
  add("dp_replicate", {Axis::dp_replicate});
  add("dp_shard", {Axis::dp_shard});
  add("cp", {Axis::cp});
  add("dp_shard+cp", {Axis::dp_shard, Axis::cp});
}

// Each rank's gradient divided by the number of its own targets.
void add_rank_means(const Case& at, std::int64_t step, const std::vector<int>& rank_of_addend,
                    std::vector<Hypothesis>& hypotheses) {
  const MeshShape& mesh = at.mesh();
  const auto num_parts = static_cast<int>(at.config().data_parallel_degree()) * mesh.degree(Axis::cp);
  if (mesh.degree(Axis::cp) == 1) return;  // without, the sequences tell
  const std::vector<double> counts = targets_of_ranks(at, step);
  double total = 0;
  for (const double count : counts) total += count;
  total /= static_cast<double>(mesh.num_ranks()) / num_parts;
  std::string name;
  for (const auto& [axis_name, axis] : batch_axes)
    if (mesh.degree(axis) > 1) name += (name.empty() ? "" : "+") + std::string(axis_name);
  hypotheses.push_back({[&rank_of_addend, counts, total, num_parts](int, std::size_t addend) {
                          const double count = counts[static_cast<std::size_t>(rank_of_addend[addend])];
                          return count > 0 ? total / (num_parts * count) : 0;
                        },
                        FaultKind::mean_of_means, name, mean_of_means_evidence(name, num_parts, total)});
}

std::vector<Finding> by_ranks(const Case& at, const Difference& difference, const TensorPieces& pieces) {
  std::vector<Hypothesis> hypotheses;
  std::vector<int> rank_of_addend;
  add_rank_hypotheses(at, rank_of_addend, hypotheses);
  add_rank_means(at, difference.step, rank_of_addend, hypotheses);
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
