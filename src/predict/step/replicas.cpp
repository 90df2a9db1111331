#include "predict/step/replicas.h"

#include "spec/groups.h"

#include <algorithm>
#include <set>
#include <utility>

namespace echelon {
namespace {

constexpr Axis replica_axes[] = {Axis::cluster, Axis::dp_replicate, Axis::dp_shard};

int moved(const MeshShape& mesh, int rank, Axis axis, int coordinate) {
  Coordinates coordinates = mesh.coordinates_of(rank);
  coordinates[static_cast<std::size_t>(axis)] = coordinate;
  return mesh.rank_of(coordinates);
}

int first_rank_of(const MeshShape& mesh, int replica) {
  Coordinates coordinates{};
  for (std::size_t i = std::size(replica_axes); i-- > 0;) {
    const int degree = mesh.degree(replica_axes[i]);
    coordinates[static_cast<std::size_t>(replica_axes[i])] = replica % degree;
    replica /= degree;
  }
  return mesh.rank_of(coordinates);
}

/// Gives each different value an index, in the order of first occurrence.
template <class Key>
std::vector<int> numbered(const std::vector<Key>& keys) {
  std::map<Key, int> numbers;
  std::vector<int> result;
  for (const Key& key : keys) result.push_back(numbers.emplace(key, static_cast<int>(numbers.size())).first->second);
  return result;
}

int num_different(const std::vector<int>& numbers) {
  return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
}

}  // namespace

Replicas::Replicas(const DeviceMap& devices, const std::map<int, double>& slow_ranks, int context_rank)
    : mesh_(devices.mesh()), context_rank_(context_rank) {
  const int num_replicas =
      mesh_.num_ranks() / (mesh_.degree(Axis::pp) * mesh_.degree(Axis::cp) * mesh_.degree(Axis::tp));
  if (slow_ranks.empty() && devices.divides_into_nodes()) {
    class_of_.assign(static_cast<std::size_t>(num_replicas), 0);
  } else {
    std::vector<std::vector<double>> looks;
    for (int replica = 0; replica < num_replicas; ++replica) looks.push_back(look_of(replica, devices, slow_ranks));
    class_of_ = numbered(looks);
    refine();
  }
  first_.assign(static_cast<std::size_t>(num_different(class_of_)), -1);
  sizes_.assign(first_.size(), 0);
  for (int replica = 0; replica < num_replicas; ++replica) {
    const auto of = static_cast<std::size_t>(class_of_[static_cast<std::size_t>(replica)]);
    if (sizes_[of]++ == 0) first_[of] = first_rank_of(mesh_, replica);
  }
}

int Replicas::rank_of(int replica_class, int pipeline_rank) const {
  const int first = moved(mesh_, first_[static_cast<std::size_t>(replica_class)], Axis::cp, context_rank_);
  return moved(mesh_, first, Axis::pp, pipeline_rank);
}

int Replicas::replica_of(int rank) const {
  const Coordinates coordinates = mesh_.coordinates_of(rank);
  int replica = 0;
  for (const Axis axis : replica_axes)
    replica = replica * mesh_.degree(axis) + coordinates[static_cast<std::size_t>(axis)];
  return replica;
}

int Replicas::class_of_rank(int rank) const { return class_of_[static_cast<std::size_t>(replica_of(rank))]; }

/// What its own time depends on: of every rank the kind of its node, its pace, and whether its neighbours are on its
/// node.
std::vector<double> Replicas::look_of(int replica, const DeviceMap& devices,
                                      const std::map<int, double>& slow_ranks) const {
  std::vector<double> look;
  const int first = first_rank_of(mesh_, replica);
  int before = devices.node_of(first);
  const int num_tp = mesh_.degree(Axis::tp), num_of_stage = num_tp * mesh_.degree(Axis::cp);
  for (int i = 0; i < mesh_.degree(Axis::pp) * num_of_stage; ++i) {
    const int of_stage = moved(mesh_, moved(mesh_, first, Axis::pp, i / num_of_stage), Axis::tp, i % num_tp);
    const int rank = moved(mesh_, of_stage, Axis::cp, i % num_of_stage / num_tp);
    const int node = devices.node_of(rank);
    const auto slow = slow_ranks.find(rank);
    look.push_back(static_cast<double>(&devices.kind_of(rank) - devices.machine().nodes.data()));
    look.push_back(slow == slow_ranks.end() ? 1 : slow->second);
    look.push_back(node == std::exchange(before, node) ? 0 : 1);
  }
  return look;
}

/// The classes of those that it reduces with over `group`, each once.
std::vector<int> Replicas::neighbours_of(int replica, const Group& group) const {
  std::set<int> classes;
  for (const int rank : mesh_.ranks_of(group, first_rank_of(mesh_, replica))) classes.insert(class_of_rank(rank));
  return {classes.begin(), classes.end()};
}

/// Replicas of one class that meet different classes are told apart, until none do (color refinement).
void Replicas::refine() {
  for (int before = 0; before < num_different(class_of_) && num_different(class_of_) > 1;) {
    before = num_different(class_of_);
    std::vector<std::vector<std::vector<int>>> keys;
    for (int replica = 0; replica < static_cast<int>(class_of_.size()); ++replica)
      keys.push_back({{class_of_[static_cast<std::size_t>(replica)]},
                      neighbours_of(replica, shard_group),
                      neighbours_of(replica, replicate_group)});
    class_of_ = numbered(keys);
  }
}

}  // namespace echelon
