// S: bytes of the whole buffer; n: ranks; N: nodes; r: ranks on a node; L: bytes per second of a device's link; C: of
// the group's cards of a node. One direction each.
#include "predict/machine/collective_time.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

/// What NCCL moves a buffer with: flags with every word, with every 120 bytes, or none (LL, LL128, Simple).
/// Latencies of a hop in multiples of LL's: NCCL 2.19, src/graph/tuning.cc (0.6, 1.25 and 3.4-4 us over NVLink, 5, 8.5
/// and 14 us between nodes). LL's share of the bandwidth is that of NCCL 2.8, ibid.: later versions cap it by the
/// generation of GPUs, at 0.1 to 0.5.
struct Protocol {
  double bandwidth, link_hop, network_hop;
};
constexpr Protocol protocols[] = {{0.25, 1, 1}, {0.92, 2.1, 1.7}, {1, 6, 2.8}};
constexpr double tree_bandwidth = 0.9;    // of a ring's inside a node, ibid.
constexpr double switch_seconds = 25e-6;  // a sum in NVLink's switches before its first byte, ibid.

/// How an algorithm moves a buffer: the seconds for which it holds the busiest link, and hops one after the other.
struct Way {
  double transfer_seconds = 0;
  double link_hops = 0, network_hops = 0;
};

/// What a group has to communicate over.
class Fabric {
 public:
  Fabric(const GroupPlacement& placement, const NetworkSpec& network)
      : link_(*placement.link),
        network_(network),
        n_(placement.num_ranks),
        N_(placement.num_nodes),
        r_(placement.ranks_per_node),
        L_(link_.bandwidth * link_.efficiency),
        C_(placement.cards_bandwidth),
        nodes_per_leaf_(N_ / placement.num_leaves) {
    // A ring or tree leaves a leaf switch once for all of the group's nodes on it.
    if (placement.num_leaves > 1)
      C_above_leaves_ = C_ / std::max(1.0, network.oversubscription / nodes_per_leaf_);
    else
      C_above_leaves_ = C_;
  }

  [[nodiscard]] double all_reduce(double S) const {
    double best = std::min(fastest(ring(2, S)), fastest(tree(S)));
    if (link_.reduces_in_switch && r_ > 1) best = std::min(best, in_switches(S));
    return best;
  }
  /// All-gather and reduce-scatter.
  [[nodiscard]] double shards(double S) const { return fastest(ring(1, S)); }
  [[nodiscard]] double all_to_all(double S) const {
    Way way = {S * (r_ - 1) / n_ / L_, n_ - 1, 0};
    if (N_ == 1) return fastest(way);
    const double crossing = nodes_per_leaf_ < N_ ? network_.oversubscription * (N_ - nodes_per_leaf_) / (N_ - 1) : 1;
    way.transfer_seconds = std::max(way.transfer_seconds, r_ * S * (n_ - r_) / n_ / (C_ / std::max(1.0, crossing)));
    return fastest({way.transfer_seconds, r_ - 1, N_ - 1});
  }
  [[nodiscard]] double broadcast(double S) const { return fastest({S / ring_bandwidth(), n_ - N_, N_ - 1}); }
  [[nodiscard]] double transfer(double S) const {
    return N_ == 1 ? fastest({S / L_, 1, 0}) : fastest({S / std::min(L_, C_above_leaves_), 0, 1});
  }

 private:
  [[nodiscard]] double ring_bandwidth() const { return N_ == 1 ? L_ : std::min(L_, C_above_leaves_); }
  [[nodiscard]] Way ring(double rounds, double S) const {
    return {rounds * (n_ - 1) / n_ * S / ring_bandwidth(), rounds * (n_ - N_), rounds * (N_ - 1)};
  }

  /// Chains inside nodes, two trees over them: a node that is inner in one of them is a leaf of the other and sends and
  /// receives the buffer twice, of two nodes once.
  [[nodiscard]] double seconds_between_nodes(double S) const {
    return N_ == 1 ? 0 : (N_ == 2 ? 1 : 2) * S / C_above_leaves_;
  }
  [[nodiscard]] double levels() const { return std::ceil(std::log2(N_)); }
  [[nodiscard]] Way tree(double S) const {
    const double inside = r_ > 1 ? 2 * S / (tree_bandwidth * L_) : 0;
    return {std::max(inside, seconds_between_nodes(S)), 2 * (r_ - 1), 2 * levels()};
  }

  /// A device hands its buffer to the switch for the sum of everybody's parts and gets the sum back: 1 + 1/r of the
  /// buffer each way. Between nodes a tree, or switches that sum too.
  [[nodiscard]] double in_switches(double S) const {
    const double inside = (1 + 1 / r_) * S / (link_.bandwidth * link_.switch_efficiency);
    const bool sums_between = network_.reduces_in_switch && N_ > 1;
    const double between = sums_between ? S / C_above_leaves_ : seconds_between_nodes(S);
    const double hops = sums_between ? 2 : 2 * levels();
    return link_.start_seconds + switch_seconds + std::max(inside, between) +
           hops * protocols[2].network_hop * network_.latency_seconds;
  }

  [[nodiscard]] double fastest(const Way& way) const {
    if (link_.kind == LinkKind::shared_memory) return seconds(way, {1, 1, 1});  // none of NCCL's protocols
    double best = seconds(way, protocols[0]);
    for (const Protocol& protocol : {protocols[1], protocols[2]}) best = std::min(best, seconds(way, protocol));
    return best;
  }
  [[nodiscard]] double seconds(const Way& way, const Protocol& protocol) const {
    return link_.start_seconds + way.transfer_seconds / protocol.bandwidth +
           way.link_hops * protocol.link_hop * link_.latency_seconds +
           way.network_hops * protocol.network_hop * network_.latency_seconds;
  }

  const NodeLink& link_;
  const NetworkSpec& network_;
  double n_, N_, r_, L_, C_;
  double nodes_per_leaf_;
  double C_above_leaves_ = 0;
};

Collective collective_of(CommKind kind) {
  switch (kind) {
    case CommKind::all_reduce: return Collective::all_reduce;
    case CommKind::all_gather: return Collective::all_gather;
    case CommKind::reduce_scatter: return Collective::reduce_scatter;
    case CommKind::all_to_all: return Collective::all_to_all;
    case CommKind::broadcast: return Collective::broadcast;
    case CommKind::send:
    case CommKind::receive: return Collective::transfer;
    case CommKind::barrier: return Collective::barrier;
  }
  return Collective::barrier;
}

double modelled_seconds(CommKind kind, double bytes, const Fabric& fabric) {
  switch (kind) {
    case CommKind::all_reduce: return fabric.all_reduce(bytes);
    case CommKind::all_gather:
    case CommKind::reduce_scatter: return fabric.shards(bytes);
    case CommKind::all_to_all: return fabric.all_to_all(bytes);
    case CommKind::broadcast: return fabric.broadcast(bytes);
    case CommKind::send:
    case CommKind::receive: return fabric.transfer(bytes);
    case CommKind::barrier: return fabric.all_reduce(0);
  }
  return 0;
}

/// Straight lines between the logarithms of sizes and seconds.
double on_curve(const CollectiveCurve& curve, double bytes) {
  const auto& sizes = curve.bytes;
  const auto& seconds = curve.seconds;
  if (bytes <= sizes.front()) return seconds.front();
  if (bytes >= sizes.back()) return seconds.back() * (sizes.back() > 0 ? bytes / sizes.back() : 1);
  const auto above = static_cast<std::size_t>(std::upper_bound(sizes.begin(), sizes.end(), bytes) - sizes.begin());
  const std::size_t below = above - 1;
  if (sizes[below] <= 0 || seconds[below] <= 0)
    return seconds[below] + (seconds[above] - seconds[below]) * (bytes - sizes[below]) / (sizes[above] - sizes[below]);
  const double part = std::log(bytes / sizes[below]) / std::log(sizes[above] / sizes[below]);
  return seconds[below] * std::pow(seconds[above] / seconds[below], part);
}

}  // namespace

std::optional<double> measured_seconds(const NodeLink& link, Collective collective, double bytes, int num_ranks) {
  const CollectiveCurve* below = nullptr;  // the largest group of at most so many ranks, and the smallest of more
  const CollectiveCurve* above = nullptr;
  for (const CollectiveCurve& curve : link.measured) {
    if (curve.collective != collective) continue;
    if (curve.num_ranks <= num_ranks && (below == nullptr || curve.num_ranks > below->num_ranks)) below = &curve;
    if (curve.num_ranks > num_ranks && (above == nullptr || curve.num_ranks < above->num_ranks)) above = &curve;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return on_curve(*above, bytes);
  // Every rank adds its part.
  if (above == nullptr) return on_curve(*below, bytes) * num_ranks / static_cast<double>(below->num_ranks);
  const double part =
      static_cast<double>(num_ranks - below->num_ranks) / static_cast<double>(above->num_ranks - below->num_ranks);
  return (1 - part) * on_curve(*below, bytes) + part * on_curve(*above, bytes);
}

double collective_seconds(CommKind kind, double bytes, const GroupPlacement& placement, const NetworkSpec& network) {
  if (placement.num_ranks < 2) return 0;
  if (placement.num_nodes == 1 && !placement.link->measured.empty())
    if (const auto measured = measured_seconds(*placement.link, collective_of(kind), bytes, placement.num_ranks))
      return *measured;
  return modelled_seconds(kind, bytes, Fabric(placement, network));
}

}  // namespace echelon
