// The best step over numbers of devices, the batch being the same: how far more of them help (strong scaling).
#pragma once

#include "plan/search/long_run.h"

#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct ScalingPoint {
  std::int64_t num_devices = 0;
  Plan plan;
  double efficiency = 1;    // of the first point's device seconds
  bool is_complete = true;  // as in PlanResult
  double within = 0;        // likewise
  double price_per_million_tokens = 0;
  std::optional<LongRun> training = {};  // if one is asked for
};

struct Scaling {
  std::vector<ScalingPoint> points;
  std::vector<std::int64_t> without_plan;  // numbers of devices of which nothing fits, or which no layout has
};

/// From the request's fewest devices, twice as many each time, up to its number of devices, and these; and all whole
/// nodes between them, of which there are at most 16. Throws Error if none of them has a legal layout.
[[nodiscard]] Scaling scaling_of(const PlanRequest& request);

/// The first number of devices that trains the tokens within the hours, if both are asked for and one does.
[[nodiscard]] std::optional<std::int64_t> fewest_in_time(const Scaling& scaling);

[[nodiscard]] std::string to_text(const Scaling& scaling, const PlanRequest& request);
[[nodiscard]] std::string to_json(const Scaling& scaling, const PlanRequest& request);
/// Sentences about what is not in the table, or not certain; maybe none.
[[nodiscard]] std::vector<std::string> remarks_of(const Scaling& scaling, const PlanRequest& request);

}  // namespace echelon
