#include "train/run_placement.h"

#include "base/error.h"
#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace echelon {
namespace {

/// How many ranks in a row each host has; 0: not equally many, for a reason.
struct HostRows {
  std::int64_t num_ranks = 0;
  std::string why = "";
};
HostRows rows_of(std::span<const int> hosts) {
  std::vector<std::int64_t> rows;
  std::set<int> known;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank > 0 && hosts[rank] == hosts[rank - 1]) {
      ++rows.back();
      continue;
    }
    if (!known.insert(hosts[rank]).second)
      return {0, fmt::format("rank {} is on a host of ranks before rank {}, which is on another", rank, rank - 1)};
    rows.push_back(1);
  }
  const auto [least, most] = std::ranges::minmax(rows);
  if (least == most) return {least};
  return {0, fmt::format("one host has {} and another has {}", counted(most, "rank"), least)};
}

bool are_several(std::span<const int> hosts) {
  return std::ranges::any_of(hosts, [&](int host) { return host != hosts.front(); });
}

/// Why ranks on several hosts, which no key describes, send rows directly; empty: experts are inside of hosts.
std::string reason_for_direct(RunConfig config, std::span<const int> hosts) {
  const HostRows rows = rows_of(hosts);
  if (rows.num_ranks == 0) return rows.why;
  ParallelConfig& p = config.parallelism;
  p.ranks_per_node = rows.num_ranks;
  const std::optional<int> on_node = ep_neighbours_on_node(config);
  if (on_node == p.expert_parallel_degree) return "";
  return fmt::format("{} of the {} ranks with the experts of a layer",
                     on_node ? "each host has one" : "hosts have unequal counts", p.expert_parallel_degree);
}

}  // namespace

RankPlacement placement_of(const RunConfig& config) {
  return place_ranks(config.comm.backend, config.mesh_shape().num_ranks());
}

RunConfig with_nodes(RunConfig config) {
  if (!asks_for_nodes(config.parallelism)) return config;
  return with_nodes(config, hosts_of_ranks(placement_of(config)));
}

RunConfig with_nodes(RunConfig config, std::span<const int> hosts) {
  if (!asks_for_nodes(config.parallelism) || !are_several(hosts)) return config;
  ParallelConfig& p = config.parallelism;
  const HostRows rows = rows_of(hosts);
  require(p.expert_dispatch == ExpertDispatch::automatic || rows.num_ranks > 0,
          "parallelism.expert_dispatch = 'hierarchical' needs equally many ranks in a row on every host, but {} (use "
          "'direct')",
          rows.why);
  p.ranks_per_node = rows.num_ranks;
  if (p.expert_dispatch == ExpertDispatch::automatic && ep_on_node(config) == 0) p.ranks_per_node = 0;
  validate(config);
  return config;
}

std::string dispatch_description(const RunConfig& config) {
  const bool is_known = !asks_for_nodes(config.parallelism);
  return dispatch_description(config, is_known ? std::vector<int>() : hosts_of_ranks(placement_of(config)));
}

std::string dispatch_description(const RunConfig& config, std::span<const int> hosts) {
  const std::int64_t ep = config.parallelism.expert_parallel_degree;
  if (const int on_node = config.model.has_experts() ? ep_on_node(config) : 0; on_node > 1)
    return fmt::format("experts: rows go in two hops over {} nodes, with {} of the {} ranks of a layer's experts each",
                       ep / on_node, on_node, ep);
  if (!asks_for_nodes(config.parallelism) || !are_several(hosts)) return "";
  const std::string why = reason_for_direct(config, hosts);
  return why.empty() ? "" : fmt::format("experts: rows go directly, since {}", why);
}

}  // namespace echelon
