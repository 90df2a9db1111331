// Which copies of the model take the same time. A replica is the ranks that see the same sequences: all stages,
// context-parallel and tensor-parallel ranks of one copy. Those on the same kinds of devices, with the same placement
// and speed, that reduce gradients with the same others do everything at the same time, so one of them represents all.
#pragma once

#include "predict/machine/device_map.h"

#include <map>
#include <vector>

namespace echelon {

class Replicas {
 public:
  /// `slow_ranks`: factors of the time of what they compute; `context_rank`: the coordinate along cp of the ranks that
  /// represent their stages.
  Replicas(const DeviceMap& devices, const std::map<int, double>& slow_ranks, int context_rank = 0);

  [[nodiscard]] int num_classes() const { return static_cast<int>(first_.size()); }
  /// How many replicas are of a class.
  [[nodiscard]] int size_of(int replica_class) const { return sizes_[static_cast<std::size_t>(replica_class)]; }
  /// The first tensor-parallel rank of a stage of the first replica of a class, at the context rank.
  [[nodiscard]] int rank_of(int replica_class, int pipeline_rank) const;
  [[nodiscard]] int class_of_rank(int rank) const;

 private:
  [[nodiscard]] int replica_of(int rank) const;
  [[nodiscard]] std::vector<double> look_of(int replica, const DeviceMap& devices,
                                            const std::map<int, double>& slow_ranks) const;
  [[nodiscard]] std::vector<int> neighbours_of(int replica, const Group& group) const;
  void refine();

  MeshShape mesh_;
  int context_rank_;
  std::vector<int> class_of_;  // by replica
  std::vector<int> first_;     // rank, by class
  std::vector<int> sizes_;     // by class
};

}  // namespace echelon
