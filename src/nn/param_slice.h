// Where a rank's slice of a parameter lies in the whole one: what makes a number a function of its global place,
// whatever the layout.
#pragma once

#include "nn/param.h"

namespace echelon {

/// The local tensor as [outer, count, inner] around the dim that is cut, and where its rows lie in the whole one.
struct ParamSlice {
  std::int64_t outer = 1, first = 0, count = 1, global_count = 1, inner = 1;
};
[[nodiscard]] ParamSlice slice_of(const Param& param);

/// A number for the parameter's name, the same on every machine.
[[nodiscard]] std::uint64_t stream_of(const Param& param);

}  // namespace echelon
