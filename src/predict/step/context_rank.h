// The ranks of a context-parallel group wait for each other at every hop of attention, so a pass of any of them takes
// as long as that of the one with the most pairs (query, key). That one represents the group.
#pragma once

#include "blueprint/call_trace.h"
#include "spec/config/run_config.h"

#include <cstdint>
#include <vector>

namespace echelon {

class ContextRanks {
 public:
  /// Documents leave `pairs_share` of the pairs of whole sequences, in all ranks together.
  explicit ContextRanks(const RunConfig& config, double pairs_share = 1);

  /// The coordinate along cp of the rank with the most pairs; the first of them where several have as many.
  [[nodiscard]] int busiest() const { return busiest_; }
  /// `rank` with that coordinate.
  [[nodiscard]] int busiest_like(int rank, const MeshShape& mesh) const;
  /// Flops of an operation on average over the group, from those of the rank with this coordinate: attention has as
  /// many as pairs.
  [[nodiscard]] double mean_flops(const OpRecord& operation, int coordinate) const;

 private:
  double pairs_share_;
  int busiest_ = 0;
  std::vector<double> mean_over_own_;  // pairs, by coordinate; empty where every rank has as many
};

/// A message; or what attention posts together as one: the sends and receives of a hop of a ring, the collectives of
/// several tensors.
struct PostedMessage {
  CommRecord record;
  std::size_t num_records = 1;  // of the trace, one after the other
};
/// Of the communication at `index` of a trace.
[[nodiscard]] PostedMessage posted_at(const std::vector<TraceEvent>& events, std::size_t index);

}  // namespace echelon
