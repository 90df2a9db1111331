// Where a unit's parameters lie in flat buffers: one bucket per way in which gradients come together. A bucket is cut
// evenly (padded) over the ranks of the shard group; under ZeRO a rank keeps master weights and moments of its own part
// only (Rajbhandari et al. 2020, arXiv:1910.02054).
#pragma once

#include "nn/param.h"

#include <cstdint>
#include <vector>

namespace echelon {

/// One parameter inside a bucket, in elements.
struct Segment {
  Param* param = nullptr;
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

/// A part [first, first + count) of a bucket, in elements.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct Bucket {
  ReplicaSum replica_sum = ReplicaSum::none;
  std::vector<Segment> segments;
  std::int64_t num_elements = 0;  // with padding: a multiple of the shard degree

  /// The part of shard `index` of `shard_degree`.
  [[nodiscard]] Range shard(int index, int shard_degree) const {
    const std::int64_t count = num_elements / shard_degree;
    return {index * count, count};
  }
  /// Parameters, without padding, inside `range`.
  [[nodiscard]] std::int64_t num_parameters_in(Range range) const;
};

/// The part of a segment that lies in a range, in the bucket's elements; count 0 if none does.
[[nodiscard]] Range overlap(const Segment& segment, Range range);

/// The buckets of a unit's parameters, in the order of ReplicaSum; empty ones are left out. Parameters start at
/// multiples of 16 elements.
[[nodiscard]] std::vector<Bucket> make_buckets(const std::vector<Param*>& params, int shard_degree);

}  // namespace echelon
