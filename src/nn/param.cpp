#include "nn/param.h"

#include "base/drawn_values.h"

namespace echelon {

std::uint64_t stream_of(const Param& param) { return stream_called(param.name); }

}  // namespace echelon
