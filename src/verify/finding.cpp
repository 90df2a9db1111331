#include "verify/finding.h"

#include "base/text/counted.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace echelon {

std::string_view name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::unknown: return "unknown";
    case FaultKind::missing_sum: return "missing sum";
    case FaultKind::repeated_sum: return "repeated sum";
    case FaultKind::mean_for_sum: return "mean instead of a sum";
    case FaultKind::mean_of_means: return "mean of means";
    case FaultKind::lost_microbatches: return "lost microbatches";
    case FaultKind::repeated_microbatches: return "repeated microbatches";
    case FaultKind::counted_twice: return "counted twice in the norm";
    case FaultKind::not_counted: return "not counted in the norm";
    case FaultKind::stale_tied_weight: return "stale tied weight";
    case FaultKind::stale_weight: return "stale weight";
    case FaultKind::wrong_boundary: return "wrong boundary";
    case FaultKind::wrong_position: return "wrong position";
    case FaultKind::missing_gather: return "missing gather";
    case FaultKind::wrong_sequence: return "wrong sequence";
    case FaultKind::wrong_message: return "wrong message";
    case FaultKind::missing_block: return "missing block of keys";
    case FaultKind::repeated_block: return "repeated block of keys";
    case FaultKind::own_block_only: return "gradients of the own block alone";
    case FaultKind::unmerged_parts: return "parts that were not merged";
    case FaultKind::stale_block: return "stale block of keys";
    case FaultKind::wrong_block: return "wrong block of keys";
    case FaultKind::stray_gradient: return "gradients of another rank's block";
    case FaultKind::one_replica: return "gradients of one replica of shared keys";
    case FaultKind::exchanged_heads: return "exchanged heads";
    case FaultKind::wrong_ranges: return "mask of another rank's tokens";
    case FaultKind::wrong_document: return "wrong boundary of a document";
    case FaultKind::visible_padding: return "visible padding";
    case FaultKind::lost_target: return "lost target";
    case FaultKind::wrong_target: return "wrong target";
    case FaultKind::wrong_choice: return "wrong choice of experts";
    case FaultKind::repeated_counts: return "repeated counts of experts";
    case FaultKind::lost_counts: return "lost counts of experts";
    case FaultKind::wrong_counts: return "wrong counts of experts";
    case FaultKind::wrong_router_loss: return "wrong loss of a router";
    case FaultKind::wrong_bias: return "wrong bias of a router";
    case FaultKind::lost_rows: return "lost rows of experts";
    case FaultKind::exchanged_rows: return "exchanged rows of experts";
  }
  return "?";
}

std::vector<LayoutAxis> axes_of(const RunConfig& config) {
  const MeshShape mesh = config.mesh_shape();
  std::vector<LayoutAxis> axes;
  const auto add = [&](std::string name, std::int64_t degree) {
    if (degree > 1) axes.push_back({std::move(name), static_cast<int>(degree)});
  };
  const int replicate = mesh.degree(Axis::dp_replicate), shard = mesh.degree(Axis::dp_shard);
  add("dp_replicate", replicate);
  add("dp_shard", shard);
  if (replicate > 1 && shard > 1) add("dp_replicate+dp_shard", replicate * shard);
  const int cp = mesh.degree(Axis::cp);
  add("cp", cp);
  if (cp > 1 && shard > 1) add("dp_shard+cp", shard * cp);
  if (cp > 1 && replicate > 1) add(shard > 1 ? "dp_replicate+dp_shard+cp" : "dp_replicate+cp", replicate * shard * cp);
  add("tp", mesh.degree(Axis::tp));
  add("pp", mesh.degree(Axis::pp));
  add("microbatches", config.num_microbatches());
  return axes;
}

std::vector<LayoutAxis> axes_of_experts(const RunConfig& config) {
  const int ep = static_cast<int>(config.parallelism.expert_parallel_degree),
            etp = num_feature_ranks(config.parallelism);
  std::vector<LayoutAxis> axes;
  if (ep > 1) axes.push_back({"ep", ep});
  if (etp > 1) axes.push_back({"etp", etp});
  if (ep > 1 && etp > 1) axes.push_back({"ep+etp", ep * etp});
  return axes;
}

std::string shard_axes_of(const MeshShape& mesh) {
  const bool has_shards = mesh.degree(Axis::dp_shard) > 1, has_parts = mesh.degree(Axis::cp) > 1;
  return has_shards && has_parts ? "dp_shard+cp" : has_parts ? "cp" : "dp_shard";
}

bool has_axis(const std::string& axis, const std::string& part) {
  std::istringstream names(axis);
  for (std::string name; std::getline(names, name, '+');)
    if (name == part) return true;
  return false;
}

std::string describe_ranks(const MeshShape& mesh, const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  if (static_cast<int>(ranks.size()) == mesh.num_ranks())
    return ranks.size() == 1 ? "rank 0" : fmt::format("all {} ranks", ranks.size());
  std::string shared;
  for (int i = 0; i < num_axes; ++i) {
    const auto axis = static_cast<Axis>(i);
    const int coordinate = mesh.coordinate(ranks.front(), axis);
    const bool is_shared =
        std::ranges::all_of(ranks, [&](int rank) { return mesh.coordinate(rank, axis) == coordinate; });
    if (mesh.degree(axis) > 1 && is_shared)
      shared += fmt::format("{}{} {}", shared.empty() ? " (" : ", ", name_of(axis), coordinate);
  }
  return fmt::format("{} {}{}", plural(ranks.size(), "rank"), fmt::join(ranks, ", "),
                     shared.empty() ? "" : shared + ")");
}

std::string describe_place(const Case& at, const Difference& difference) {
  std::vector<int> ranks;
  std::int64_t first = INT64_MAX, last = -1;
  for (const RankDifference& rank : difference.ranks) {
    ranks.push_back(rank.rank);
    first = std::min(first, rank.first);
    last = std::max(last, rank.last);
  }
  if (ranks.empty()) return "on no rank, or on two that both count";
  if (difference.tensor.empty() || difference.quantity == Quantity::router)
    return "on " + describe_ranks(at.mesh(), ranks);
  const bool is_whole =
      first == 0 && last + 1 == static_cast<std::int64_t>(at.reference.weight(0, difference.tensor).size());
  return fmt::format(
      "{} on {}",
      is_whole ? std::string("from its first element to its last") : fmt::format("elements {} to {}", first, last),
      describe_ranks(at.mesh(), ranks));
}

}  // namespace echelon
