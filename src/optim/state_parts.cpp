#include "optim/state_parts.h"

#include "tensor/stack.h"

#include <algorithm>

namespace echelon {

StateSlice StatePart::slice_of(Range range) const {
  const Param& param = *segment->param;
  return {.parameter = param.name,
          .state = std::string(state),
          .dtype = dtype,
          .slice = param.slice.elements({range.first - segment->offset, range.count})};
}

std::vector<StatePart> state_parts(const ShardedUnit& unit) {
  const ShardOptions& options = unit.options();
  const StateRole weight = options.has_master() ? StateRole::master : StateRole::param;
  std::vector<StatePart> parts;
  for (std::size_t b = 0; b < unit.buckets().size(); ++b)
    for (const Segment& segment : unit.buckets()[b].segments) {
      const Param& param = *segment.param;
      if (!param.is_saved) continue;
      const Range owned = overlap(segment, unit.buckets()[b].owned());
      if (owned.count == 0) continue;
      const Range share = share_of(owned, segment.copies, segment.copies.size());
      const auto add = [&](std::string_view state, StateRole role, DType dtype) {
        parts.push_back({state, role, dtype, b, &segment, owned, share});
      };
      if (!param.trains) {
        add("weight", StateRole::param, options.dtype);
        continue;
      }
      add("weight", weight, accumulate_dtype(options.dtype));
      add("exp_avg", StateRole::m, options.moments_dtype);
      add("exp_avg_sq", StateRole::v, options.moments_dtype);
    }
  return parts;
}

std::vector<SnapshotRun> snapshot_runs(const ShardedUnit& unit) {
  constexpr std::int64_t widest_padding = 16;  // between parameters: it is copied too
  const ShardOptions& options = unit.options();
  std::vector<SnapshotRun> runs;
  const auto add = [&](StateRole role, DType dtype, const StatePart& part) {
    const auto last = std::find_if(runs.rbegin(), runs.rend(), [&](const SnapshotRun& run) {
      return run.role == role && run.bucket == part.bucket;
    });
    if (last != runs.rend() && part.share.first < last->range.first + last->range.count + widest_padding)
      last->range.count = part.share.first + part.share.count - last->range.first;
    else
      runs.push_back({.role = role, .bucket = part.bucket, .dtype = dtype, .range = part.share});
  };
  for (const StatePart& part : state_parts(unit)) {
    if (part.share.count == 0) continue;
    if (part.role == StateRole::param || (part.role == StateRole::master && options.stores_remainders))
      add(StateRole::param, options.dtype, part);
    if (part.role == StateRole::master) add(StateRole::master, options.master_dtype(), part);
    if (part.role == StateRole::m || part.role == StateRole::v) add(part.role, options.moments_dtype, part);
  }
  std::int64_t end = 0;
  for (SnapshotRun& run : runs) {
    run.first_byte = end;
    end = aligned(end + run.num_bytes());
  }
  return runs;
}

std::int64_t num_bytes_of(const std::vector<SnapshotRun>& runs) {
  return runs.empty() ? 0 : aligned(runs.back().first_byte + runs.back().num_bytes());
}

}  // namespace echelon
