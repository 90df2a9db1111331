#include "optim/bucket.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {
// 64 bytes of float32: vectors do not straddle parameters, and shards start on cache lines.
constexpr std::int64_t alignment_elements = 16;

std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}
}  // namespace

Range overlap(const Segment& segment, Range range) {
  const std::int64_t first = std::max(segment.offset, range.first);
  const std::int64_t end = std::min(segment.offset + segment.count, range.first + range.count);
  return {first, std::max<std::int64_t>(0, end - first)};
}

std::int64_t Bucket::num_parameters_in(Range range) const {
  std::int64_t sum = 0;
  for (const Segment& segment : segments) sum += overlap(segment, range).count;
  return sum;
}

std::vector<Bucket> make_buckets(const std::vector<Param*>& params, const MeshShape& mesh, int rank, bool shards) {
  std::map<GradientGroups, std::vector<Param*>> by_groups;
  for (Param* param : params) by_groups[param->groups].push_back(param);
  std::vector<Bucket> buckets;
  for (const auto& [groups, members] : by_groups) {
    Bucket& bucket = buckets.emplace_back();
    bucket.groups = groups;
    const GroupPlace shard = mesh.place_in(groups.shard, rank);
    if (shards) bucket.shard = shard;
    bucket.is_first_copy = mesh.place_in(groups.replicate, rank).index == 0 && (shards || shard.index == 0);
    for (Param* param : members) {
      const std::int64_t count = param->local_sizes().num_elements();
      bucket.segments.push_back({param, bucket.num_elements, count});
      bucket.num_elements = round_up(bucket.num_elements + count, alignment_elements);
    }
    bucket.num_elements = round_up(bucket.num_elements, alignment_elements * bucket.shard.size);
  }
  return buckets;
}

}  // namespace echelon
