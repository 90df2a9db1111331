#include "blueprint/batch_layout.h"

#include <cassert>

namespace echelon {

BatchLayout::BatchLayout(const RunConfig& config)
    : mesh_(config.mesh_shape()),
      num_replicas_(static_cast<int>(config.data_parallel_degree())),
      num_microbatches_(static_cast<int>(config.num_microbatches())),
      rows_(config.training.micro_batch_size) {}

BatchPlace BatchLayout::place_of(std::int64_t index) const {
  return {.replica = static_cast<int>(index / rows_ % num_replicas_),
          .microbatch = static_cast<int>(index / (num_replicas_ * rows_)),
          .row = index % rows_};
}

std::int64_t BatchLayout::sequence_at(const BatchPlace& place) const {
  return (std::int64_t{place.microbatch} * num_replicas_ + place.replica) * rows_ + place.row;
}

std::vector<std::int64_t> BatchLayout::sequences_of(int rank, std::int64_t first) const {
  std::vector<std::int64_t> sequences;
  const int replica = replica_of(rank);
  for (int m = 0; m < num_microbatches_; ++m)
    for (std::int64_t row = 0; row < rows_; ++row) sequences.push_back(first + sequence_at({replica, m, row}));
  return sequences;
}

int BatchLayout::replica_of(int rank) const {
  return mesh_.coordinate(rank, Axis::dp_replicate) * mesh_.degree(Axis::dp_shard) +
         mesh_.coordinate(rank, Axis::dp_shard);
}

int BatchLayout::coordinate_of(int replica, Axis axis) const {
  assert(axis == Axis::dp_replicate || axis == Axis::dp_shard);
  const int num_shards = mesh_.degree(Axis::dp_shard);
  return axis == Axis::dp_replicate ? replica / num_shards : replica % num_shards;
}

}  // namespace echelon
