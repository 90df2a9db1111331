#include "optim/bucket.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace echelon {
namespace {
// 64 bytes of float32: vectors do not straddle parameters, and shards start on cache lines.
constexpr std::int64_t alignment_elements = 16;

std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Without groups of one rank. Shards are not copies of each other; whole buckets are.
std::vector<Copies> copies_of(const Param& param, bool shards, const MeshShape& mesh, int rank) {
  std::vector<Copies> copies;
  const auto add = [&](const std::optional<Group>& group) {
    if (!group) return;
    if (const GroupPlace place = mesh.place_in(*group, rank); place.size > 1) copies.push_back({*group, place});
  };
  add(param.groups.replicate);
  if (!shards) add(param.groups.shard);
  add(param.groups.tied);
  add(param.copies);
  return copies;
}

}  // namespace

Range share_of(Range whole, const std::vector<Copies>& copies, std::size_t num_groups) {
  constexpr std::int64_t grain = 4096;
  std::int64_t first = 0, num_places = 1;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    num_places *= copies[i].place.size;
    first = first * copies[i].place.size + (i < num_groups ? copies[i].place.index : 0);
  }
  std::int64_t num_of_share = 1;
  for (std::size_t i = num_groups; i < copies.size(); ++i) num_of_share *= copies[i].place.size;
  const std::int64_t num_grains = (whole.count + grain - 1) / grain;
  const auto start = [&](std::int64_t place) { return std::min(whole.count, num_grains * place / num_places * grain); };
  const std::int64_t begin = start(first), end = start(first + num_of_share);
  return {whole.first + begin, end - begin};
}

Range overlap(const Segment& segment, Range range) {
  const std::int64_t first = std::max(segment.offset, range.first);
  const std::int64_t end = std::min(segment.offset + segment.count, range.first + range.count);
  return {first, std::max<std::int64_t>(0, end - first)};
}

void Bucket::place_at(const MeshShape& mesh, int rank) {
  const bool is_sharded = shard.size > 1;
  const GroupPlace place = mesh.place_in(groups.shard, rank);
  if (is_sharded) shard = place;
  is_first_copy = mesh.place_in(groups.replicate, rank).index == 0 && (is_sharded || place.index == 0);
  const Segment* before = nullptr;  // most often in the same groups
  for (Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.copies.size(); ++i) {
      Copies& copies = segment.copies[i];
      const bool is_known = before != nullptr && i < before->copies.size() && before->copies[i].group == copies.group;
      copies.place = is_known ? before->copies[i].place : mesh.place_in(copies.group, rank);
    }
    before = &segment;
  }
}

std::int64_t Bucket::num_parameters_in(Range range) const {
  std::int64_t sum = 0;
  for (const Segment& segment : segments) sum += overlap(segment, range).count;
  return sum;
}

std::vector<Bucket> make_buckets(const std::vector<Param*>& params, const MeshShape& mesh, int rank, bool shards) {
  std::map<std::tuple<bool, bool, GradientGroups>, std::vector<Param*>> by_groups;
  for (Param* param : params) by_groups[{!param->trains, !param->is_saved, param->groups}].push_back(param);
  std::vector<Bucket> buckets;
  for (const auto& [key, members] : by_groups) {
    const auto& [is_frozen, is_left_out, groups] = key;
    Bucket& bucket = buckets.emplace_back();
    bucket.groups = groups;
    bucket.trains = !is_frozen;
    bucket.is_saved = !is_left_out;
    if (shards) bucket.shard = mesh.place_in(groups.shard, rank);
    bucket.place_at(mesh, rank);
    for (Param* param : members) {
      const std::int64_t count = param->local_sizes().num_elements();
      bucket.segments.push_back({param, bucket.num_elements, count, copies_of(*param, shards, mesh, rank)});
      bucket.num_elements = round_up(bucket.num_elements + count, alignment_elements);
    }
    bucket.num_elements = round_up(bucket.num_elements, alignment_elements * bucket.shard.size);
  }
  return buckets;
}

}  // namespace echelon
