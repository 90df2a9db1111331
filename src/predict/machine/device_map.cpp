#include "predict/machine/device_map.h"

#include "base/error.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>

namespace echelon {
namespace {

/// Threads and processes of one host are as many as are asked for.
bool is_host(const NodeSpec& node) { return node.link.kind == LinkKind::shared_memory && node.count == 0; }

/// How many of `degree` ranks at `stride` are in an aligned block of `block` ranks; none if that differs from block to
/// block.
std::optional<std::int64_t> members_of_axis(std::int64_t stride, std::int64_t degree, std::int64_t block) {
  if (stride % block == 0) return 1;
  if (block % (stride * degree) == 0) return degree;
  if (block % stride == 0 && stride * degree % block == 0) return block / stride;
  return std::nullopt;
}

double speed_of(const NodeLink& link) { return link.bandwidth * link.efficiency; }

/// Of groups of as many ranks.
bool is_slower(const GroupPlacement& a, const GroupPlacement& b) {
  const auto key = [](const GroupPlacement& each) { return std::tuple(each.num_nodes, each.num_leaves); };
  if (key(a) != key(b)) return key(a) > key(b);
  return a.num_nodes == 1 ? speed_of(*a.link) < speed_of(*b.link) : a.cards_bandwidth < b.cards_bandwidth;
}

}  // namespace

DeviceMap::DeviceMap(const MeshShape& mesh, const MachineSpec& machine) : mesh_(mesh), machine_(&machine) {
  const auto available = machine.num_devices();
  require(!available || *available >= mesh.num_ranks(),
          "the layout has {} ranks, but the machine '{}' has {} devices (use {})", mesh.num_ranks(), machine.name,
          available.value_or(0), available.value_or(0));
  int first_rank = 0, first_node = 0;
  for (const NodeSpec& kind : machine.nodes) {
    if (first_rank >= mesh.num_ranks()) break;
    const int ranks_per_node = is_host(kind) ? std::numeric_limits<int>::max() : static_cast<int>(kind.num_devices);
    stretches_.push_back({first_rank, first_node, ranks_per_node, &kind});
    require(kind.num_nics > 0 || mesh.num_ranks() <= ranks_per_node,
            "the layout has {} ranks, but the machine '{}' has {} devices on a node and no cards between nodes "
            "(num_nics = 0) (use {})",
            mesh.num_ranks(), machine.name, kind.num_devices, kind.num_devices);
    if (kind.count == 0) break;  // it takes all that is left
    first_node += static_cast<int>(kind.count);
    first_rank += static_cast<int>(kind.count * kind.num_devices);
  }
}

const DeviceMap::Stretch& DeviceMap::stretch_of(int rank) const {
  if (stretches_.size() == 1) return stretches_.front();
  const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), rank,
                                       [](int each, const Stretch& stretch) { return each < stretch.first_rank; });
  return *(behind - 1);
}

int DeviceMap::node_of(int rank) const {
  const Stretch& stretch = stretch_of(rank);
  return stretch.first_node + (rank - stretch.first_rank) / stretch.ranks_per_node;
}

const NodeSpec& DeviceMap::kind_of(int rank) const { return *stretch_of(rank).kind; }

int DeviceMap::leaf_of(int rank) const {
  const auto nodes_per_leaf = static_cast<int>(machine_->network.nodes_per_leaf);
  return nodes_per_leaf > 0 ? node_of(rank) / nodes_per_leaf : 0;
}

bool DeviceMap::divides_into_nodes() const { return divides_into(stretches_.front().ranks_per_node); }

bool DeviceMap::is_regular() const {
  return divides_into_nodes() &&
         (!counts_leaves() || divides_into(machine_->network.nodes_per_leaf * stretches_.front().ranks_per_node));
}

/// Into blocks of so many ranks, on nodes of one kind.
bool DeviceMap::divides_into(std::int64_t block) const {
  if (stretches_.size() > 1) return false;
  if (mesh_.num_ranks() <= block) return true;
  for (int i = 0; i < num_axes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (mesh_.degree(axis) > 1 && !members_of_axis(mesh_.stride(axis), mesh_.degree(axis), block)) return false;
  }
  return true;
}

int DeviceMap::rail_of(int rank) const {
  const Stretch& stretch = stretch_of(rank);
  const int device = (rank - stretch.first_rank) % stretch.ranks_per_node;
  return static_cast<int>(device * stretch.kind->num_nics / stretch.kind->num_devices);
}

double DeviceMap::share_of_cards(const Stretch& stretch, double num_sharers, int ranks_per_node) const {
  const NodeSpec& node = *stretch.kind;
  const double all = static_cast<double>(node.num_nics) * node.nic_bandwidth;
  // A device drives the card next to it, or its share of the node's cards.
  const double own = std::max(node.nic_bandwidth, all / static_cast<double>(node.num_devices)) * ranks_per_node;
  return std::min(all / std::max(num_sharers, 1.0), own) * machine_->network.efficiency;
}

/// How many ranks of the group an aligned block of ranks holds that holds any.
std::optional<int> DeviceMap::members_within(const Group& group, std::int64_t block) const {
  std::int64_t members = 1;
  for (int i = 0; i < num_axes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (!group.axes.contains(axis) || mesh_.degree(axis) == 1) continue;
    const auto of_axis = members_of_axis(mesh_.stride(axis), mesh_.degree(axis), block);
    if (!of_axis) return std::nullopt;
    members *= *of_axis;
  }
  return static_cast<int>(members);
}

GroupPlacement DeviceMap::placement_of(const Group& group, int rank) const {
  if (stretches_.size() > 1 || group.part != Group::Part::all) return placement_of_ranks(mesh_.ranks_of(group, rank));
  const Stretch& stretch = stretches_.front();
  const std::int64_t nodes_per_leaf = machine_->network.nodes_per_leaf;
  const std::int64_t leaf =
      nodes_per_leaf > 0 ? nodes_per_leaf * stretch.ranks_per_node : std::numeric_limits<int>::max();
  const auto num_ranks = members_within(group, mesh_.num_ranks());
  const auto on_node =
      mesh_.num_ranks() <= stretch.ranks_per_node ? num_ranks : members_within(group, stretch.ranks_per_node);
  const auto on_leaf = mesh_.num_ranks() <= leaf ? num_ranks : members_within(group, leaf);
  if (!num_ranks || !on_node || !on_leaf) return placement_of_ranks(mesh_.ranks_of(group, rank));
  const double devices = std::min(stretch.ranks_per_node, mesh_.num_ranks());
  return {.num_ranks = *num_ranks,
          .num_nodes = *num_ranks / *on_node,
          .ranks_per_node = *on_node,
          .num_leaves = *num_ranks / *on_leaf,
          .link = &stretch.kind->link,
          .cards_bandwidth = share_of_cards(stretch, devices / *on_node, *on_node)};
}

GroupPlacement DeviceMap::placement_of_ranks(std::vector<int> ranks) const {
  GroupPlacement placement = {.num_ranks = static_cast<int>(ranks.size()),
                              .num_nodes = 0,
                              .num_leaves = 0,
                              .cards_bandwidth = std::numeric_limits<double>::max()};
  std::sort(ranks.begin(), ranks.end());
  int last_leaf = -1;
  for (auto first = ranks.begin(); first != ranks.end();) {
    const int node = node_of(*first);
    const auto behind = std::find_if(first, ranks.end(), [&](int rank) { return node_of(rank) != node; });
    const auto on_node = static_cast<int>(behind - first);
    const Stretch& stretch = stretch_of(*first);
    ++placement.num_nodes;
    placement.ranks_per_node = std::max(placement.ranks_per_node, on_node);
    if (leaf_of(*first) != last_leaf) ++placement.num_leaves;
    last_leaf = leaf_of(*first);
    if (placement.link == nullptr || speed_of(stretch.kind->link) < speed_of(*placement.link))
      placement.link = &stretch.kind->link;
    const double devices = std::min(stretch.ranks_per_node, mesh_.num_ranks());
    placement.cards_bandwidth =
        std::min(placement.cards_bandwidth, share_of_cards(stretch, devices / on_node, on_node));
    first = behind;
  }
  return placement;
}

GroupPlacement DeviceMap::placement_of_pair(int rank, int peer) const {
  return placement_of_pair(rank, peer, std::abs(peer - rank));
}

GroupPlacement DeviceMap::placement_of_rings(Axis axis, int num_rings, int rank) const {
  const int stride = mesh_.stride(axis), degree = mesh_.degree(axis);
  const int first = rank - mesh_.coordinate(rank, axis) * stride, distance = num_rings * stride;
  const auto link = [&](int i) {
    return placement_of_pair(first + i * stride, first + (i + num_rings) % degree * stride, distance);
  };
  if (is_regular()) {  // from the last member on a node or switch
    const std::int64_t of_node = stretches_.front().ranks_per_node, per_leaf = machine_->network.nodes_per_leaf;
    const auto last_within = [&](std::int64_t block) {
      const auto members = static_cast<int>(std::clamp<std::int64_t>(block / stride, 1, degree));
      return members < degree ? members - 1 : 0;
    };
    return link(std::max(last_within(of_node), per_leaf > 0 ? last_within(per_leaf * of_node) : 0));
  }
  GroupPlacement slowest = link(0);
  for (int i = 1; i < degree; ++i)
    if (const GroupPlacement each = link(i); is_slower(each, slowest)) slowest = each;
  return slowest;
}

GroupPlacement DeviceMap::placement_of_blocks(Axis axis, int size, int rank) const {
  const Group blocks = {AxisSet{axis}, Group::Part::block, size};
  const int stride = mesh_.stride(axis), first = rank - mesh_.coordinate(rank, axis) * stride;
  GroupPlacement slowest = placement_of(blocks, first);
  for (int i = size; i < mesh_.degree(axis); i += size)
    if (const GroupPlacement each = placement_of(blocks, first + i * stride); is_slower(each, slowest)) slowest = each;
  return slowest;
}

GroupPlacement DeviceMap::placement_of_pair(int rank, int peer, int num_sharers) const {
  const Stretch& mine = stretch_of(rank);
  const Stretch& theirs = stretch_of(peer);
  const bool is_one_node = node_of(rank) == node_of(peer);
  const bool leaves_the_rail = machine_->network.rail_optimized && rail_of(rank) != rail_of(peer);
  const auto share = [&](const Stretch& stretch) {
    return share_of_cards(stretch, std::min({num_sharers, stretch.ranks_per_node, mesh_.num_ranks()}), 1);
  };
  return {.num_ranks = rank == peer ? 1 : 2,
          .num_nodes = is_one_node ? 1 : 2,
          .ranks_per_node = is_one_node && rank != peer ? 2 : 1,
          .num_leaves = is_one_node || (leaf_of(rank) == leaf_of(peer) && !leaves_the_rail) ? 1 : 2,
          .link = speed_of(mine.kind->link) <= speed_of(theirs.kind->link) ? &mine.kind->link : &theirs.kind->link,
          .cards_bandwidth = std::min(share(mine), share(theirs))};
}

}  // namespace echelon
