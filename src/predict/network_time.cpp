#include "predict/network_time.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

/// How the members of a group lie on nodes.
struct Spread {
  int num_ranks = 1;
  int num_nodes = 1;
  int most_on_a_node = 1;
};

Spread spread_of(const std::vector<int>& ranks, const DeviceMap& devices) {
  std::map<int, int> on_node;
  for (const int rank : ranks) ++on_node[devices.node_of(rank)];
  Spread spread = {static_cast<int>(ranks.size()), static_cast<int>(on_node.size()), 1};
  for (const auto& [node, count] : on_node) spread.most_on_a_node = std::max(spread.most_on_a_node, count);
  return spread;
}

struct Channel {
  double bandwidth = 0;  // of one rank in one direction
  double latency_seconds = 0;
};

/// A ring over nodes enters and leaves each node once; the groups of the node's other devices do the same and share its cards.
Channel channel_of(const Spread& spread, const NodeSpec& node, const NetworkSpec& network) {
  if (spread.num_nodes == 1) return {node.link.bandwidth * node.link.efficiency, node.link.latency_seconds};
  const double groups_on_node = static_cast<double>(node.num_devices) / spread.most_on_a_node;
  const double cards = static_cast<double>(node.num_nics) * node.nic_bandwidth * network.efficiency / network.oversubscription;
  return {std::min(cards / groups_on_node, node.link.bandwidth * node.link.efficiency), network.latency_seconds};
}

/// Passes of the whole buffer through a rank's link, and hops one after the other.
struct Algorithm {
  double passes = 0;
  double hops = 0;
};

Algorithm ring(CommKind kind, int num_ranks) {
  const double n = num_ranks;
  switch (kind) {
    case CommKind::all_reduce: return {2 * (n - 1) / n, 2 * (n - 1)};
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return {(n - 1) / n, n - 1};
    case CommKind::broadcast: return {1, n - 1};
    case CommKind::send:
    case CommKind::receive: return {1, 1};
    case CommKind::barrier: return {0, 2 * (n - 1)};
  }
  return {};
}

}  // namespace

double communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices) {
  if (record.group_size < 2) return 0;
  std::vector<int> ranks = devices.mesh().ranks_of(record.group, rank);
  if (record.peer >= 0 && record.kind != CommKind::broadcast) ranks = {rank, ranks[static_cast<std::size_t>(record.peer)]};
  const Spread spread = spread_of(ranks, devices);
  const Channel channel = channel_of(spread, devices.kind_of(rank), devices.machine().network);
  const Algorithm algorithm = ring(record.kind, spread.num_ranks);
  const double bytes = static_cast<double>(record.num_elements * size_of(record.dtype));
  return algorithm.passes * bytes / channel.bandwidth + algorithm.hops * channel.latency_seconds;
}

}  // namespace echelon
