// Keys and values that travel together.
#pragma once

#include "nn/context.h"

#include <array>

namespace echelon {

/// Keys and values, or their gradients.
using KeyBlock = std::array<Tensor, 2>;

}  // namespace echelon
