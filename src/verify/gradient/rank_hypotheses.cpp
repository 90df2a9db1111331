#include "tensor/tokens.h"
#include "verify/context/token_places.h"
#include "verify/gradient/addend_hypotheses.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

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
void add_missing_sums(const Case& at, const std::vector<int>& rank_of_addend,
                      std::vector<AddendHypothesis>& hypotheses) {
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
                    std::vector<AddendHypothesis>& hypotheses) {
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

}  // namespace

void add_rank_hypotheses(const Case& at, std::int64_t step, const std::vector<int>& rank_of_addend,
                         std::vector<AddendHypothesis>& hypotheses) {
  add_missing_sums(at, rank_of_addend, hypotheses);
  add_rank_means(at, step, rank_of_addend, hypotheses);
}

}  // namespace echelon
