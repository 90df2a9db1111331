// Why no layout is legal.
#pragma once

#include "plan/space/request.h"

namespace echelon {

/// Throws Error: degrees that do not divide the devices, fixed keys that contradict each other, or the closest batch
/// that has a layout.
[[noreturn]] void refuse_without_layouts(const PlanRequest& request);

}  // namespace echelon
