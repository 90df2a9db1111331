// The best step over numbers of devices, the batch being the same: how far more of them help (strong scaling).
#pragma once

#include "predict/plan.h"

#include <string>
#include <vector>

namespace echelon {

struct ScalingPoint {
  std::int64_t num_devices = 0;
  Plan plan;
  double efficiency = 1;  // of the first point's device seconds
};

/// Powers of two up to the request's devices, and these; those with which nothing fits are left out.
[[nodiscard]] std::vector<ScalingPoint> scaling_of(const PlanRequest& request);

[[nodiscard]] std::string to_text(const std::vector<ScalingPoint>& points);
[[nodiscard]] std::string to_json(const std::vector<ScalingPoint>& points);
/// Step time over devices, both logarithmic, with the line of perfect scaling.
[[nodiscard]] std::string to_svg(const std::vector<ScalingPoint>& points);

}  // namespace echelon
