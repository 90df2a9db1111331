#include "blueprint/batch_layout.h"
#include "nn/head_split.h"
#include "verify/gradient/addend_hypotheses.h"

#include <fmt/format.h>

#include <cmath>

namespace echelon {

// Sums over an axis that were computed n times, or divided by n. The two stages of a tied weight and the ranks that
// share a kv head are part of their axis.
void add_uniform_hypotheses(const Case& at, std::vector<AddendHypothesis>& hypotheses) {
  std::vector<LayoutAxis> axes = axes_of(at.config());
  const ModelSpec& model = at.config().model;
  if (model.tie_word_embeddings && at.mesh().degree(Axis::pp) > 2) axes.push_back({"pp", 2});
  const auto replicas = static_cast<int>(kv_replicas(model, at.mesh().degree(Axis::tp)));
  if (replicas > 1 && replicas < at.mesh().degree(Axis::tp)) axes.push_back({"tp", replicas});
  for (const LayoutAxis& axis : axes_of_experts(at.config())) axes.push_back(axis);
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

std::string mean_of_means_evidence(const std::string& axis, int degree, double num_targets) {
  return fmt::format(
      "each part of {} is divided by its own number of targets and the {} means are averaged, instead of all by the "
      "{:.0f} targets of the global batch",
      axis, degree, num_targets);
}

namespace {

void add_replica_hypotheses(const Case& at, const GradientAddends& list, std::vector<AddendHypothesis>& hypotheses) {
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

void add_microbatch_hypotheses(const Case& at, const GradientAddends& list, std::vector<AddendHypothesis>& hypotheses) {
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

// Each part of an axis, or of several, divided by its own number of targets instead of its share of all.
void add_mean_of_means(const Case& at, const GradientAddends& list, std::vector<AddendHypothesis>& hypotheses) {
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

}  // namespace

void add_subset_hypotheses(const Case& at, const GradientAddends& list, std::vector<AddendHypothesis>& hypotheses) {
  if (list.has_microbatches) add_microbatch_hypotheses(at, list, hypotheses);
  if (list.has_replicas) add_replica_hypotheses(at, list, hypotheses);
  add_mean_of_means(at, list, hypotheses);
}

}  // namespace echelon
