// Which sequences of a global batch each rank computes with; which of their tokens: context/token_lists.h. Every layout
// computes with the same global batch.
//
// Sequence i of the global batch is row i mod B of microbatch i / (R B) on replica (i / B) mod R. R: replicas, which
// are groups of ranks that compute with the same sequences; B: sequences of a microbatch on a replica.
#pragma once

#include "spec/config/run_config.h"

namespace echelon {

/// Where a sequence of a global batch is computed.
struct BatchPlace {
  int replica = 0;
  int microbatch = 0;
  std::int64_t row = 0;  // of the microbatch
  bool operator==(const BatchPlace&) const = default;
};

class BatchLayout {
 public:
  /// The config's batch sizes have been validated.
  explicit BatchLayout(const RunConfig& config);

  [[nodiscard]] int num_replicas() const { return num_replicas_; }
  [[nodiscard]] int num_microbatches() const { return num_microbatches_; }

  /// Of sequence `index` of a batch.
  [[nodiscard]] BatchPlace place_of(std::int64_t index) const;
  /// The inverse of place_of.
  [[nodiscard]] std::int64_t sequence_at(const BatchPlace& place) const;
  /// The sequences of a rank in the order in which it stores them: by microbatch, then by row. The batch starts with
  /// sequence `first` of the data.
  [[nodiscard]] std::vector<std::int64_t> sequences_of(int rank, std::int64_t first) const;

  [[nodiscard]] int replica_of(int rank) const;
  /// The coordinate of a replica's ranks along dp_replicate or dp_shard.
  [[nodiscard]] int coordinate_of(int replica, Axis axis) const;

 private:
  MeshShape mesh_;
  int num_replicas_, num_microbatches_;
  std::int64_t rows_;
};

}  // namespace echelon
