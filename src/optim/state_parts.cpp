#include "optim/state_parts.h"

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
      const Range owned = overlap(segment, unit.buckets()[b].owned());
      if (owned.count == 0) continue;
      const auto add = [&](std::string_view state, StateRole role, DType dtype) {
        parts.push_back(
            {state, role, dtype, b, &segment, owned, share_of(owned, segment.copies, segment.copies.size())});
      };
      add("weight", weight, accumulate_dtype(options.dtype));
      add("exp_avg", StateRole::m, options.moments_dtype);
      add("exp_avg_sq", StateRole::v, options.moments_dtype);
    }
  return parts;
}

}  // namespace echelon
