// Ranges of keys that are a whole block or a causal mask, recognised on the host.
#pragma once

#include "ops/operations/attention.h"

#include <span>

namespace echelon {

/// Of the ranges of a sequence's queries. Rows of padding have ranges of their own, and no shape. Linear
/// time.
[[nodiscard]] MaskShape mask_shape_of(std::span<const std::int32_t> begin, std::span<const std::int32_t> end);

}  // namespace echelon
