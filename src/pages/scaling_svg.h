// The drawing of `plan --scaling`.
#pragma once

#include "plan/search/scaling.h"

#include <string>

namespace echelon {

/// Step time over devices, both logarithmic, with the line of perfect scaling.
[[nodiscard]] std::string to_svg(const Scaling& scaling);

}  // namespace echelon
