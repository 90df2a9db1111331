// Where a unit's parameters are stored in flat buffers: one bucket for all parameters whose gradients are summed over
// the same groups, and others for those that are frozen. A bucket is sharded evenly (padded) over its shard group;
// under ZeRO a rank keeps master weights and moments of its own part only (Rajbhandari et al. 2020, arXiv:1910.02054).
#pragma once

#include "nn/param.h"

#include <cstdint>
#include <vector>

namespace echelon {

/// Ranks that hold the same values, and this rank's place among them.
struct Copies {
  Group group;
  GroupPlace place;
};

/// One parameter inside a bucket, in elements.
struct Segment {
  Param* param = nullptr;
  std::int64_t offset = 0;
  std::int64_t count = 0;
  // Who holds the same numbers of its owned part: the ranks at any place in each of these groups, outermost first.
  std::vector<Copies> copies;
};

/// The share of `whole` that falls to this rank's place in the first `num_groups` groups of copies; in all of them: to
/// this rank alone. Shares follow each other in the order of places, and start at multiples of 4,096 elements.
[[nodiscard]] Range share_of(Range whole, const std::vector<Copies>& copies, std::size_t num_groups);

struct Bucket {
  GradientGroups groups;
  GroupPlace shard = {.index = 0, .size = 1};  // this rank's among the ranks over which the bucket is sharded
  bool trains = true;                          // its parameters have gradients and optimizer states
  bool is_saved = true;                        // its parameters are in checkpoints
  bool is_first_copy = true;  // of the copies of a shard along the data axes, the one that counts in the norm
  std::vector<Segment> segments;
  std::int64_t num_elements = 0;  // with padding: a multiple of shard.size

  [[nodiscard]] Range whole() const { return {0, num_elements}; }
  /// This rank's part.
  [[nodiscard]] Range owned() const {
    const std::int64_t count = num_elements / shard.size;
    return {shard.index * count, count};
  }
  /// Moves it to a rank of the mesh that holds other shards and copies of the same parameters: one that differs from
  /// this one along the data axes alone, and has the same experts.
  void place_at(const MeshShape& mesh, int rank);
  /// Parameters, without padding, inside `range`.
  [[nodiscard]] std::int64_t num_parameters_in(Range range) const;
};

/// The part of a segment inside a range, in the bucket's elements; count 0 if they do not overlap.
[[nodiscard]] Range overlap(const Segment& segment, Range range);

/// The buckets of a unit's parameters, in the order of their groups, as `rank` sees them; `shards`: over their shard
/// groups, else every rank owns all of them. Parameters start at multiples of 16 elements.
[[nodiscard]] std::vector<Bucket> make_buckets(const std::vector<Param*>& params, const MeshShape& mesh, int rank,
                                               bool shards);

}  // namespace echelon
