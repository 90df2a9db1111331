// Configs with the choices of a layout.
#pragma once

#include "plan/space/space.h"

#include <vector>

namespace echelon {

/// In ascending order.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t number);

/// Into how many nodes' worth of ranks the machine divides meshes; 0: nodes differ, or ranks are threads.
[[nodiscard]] std::int64_t ranks_of_node(const PlanRequest& request);
/// Throws Error for what `train` would refuse.
void require_legal(const RunConfig& config);

/// All that is chosen, at its simplest.
[[nodiscard]] RunConfig without_choices(RunConfig config);
/// As few shards as the shape may have; the other data-parallel ranks are replicas.
void set_shape(RunConfig& config, const PlanShape& shape);
void set_pipeline(RunConfig& config, const PlanPipeline& pipeline);
/// What `train` is given.
[[nodiscard]] RunConfig config_of(const PlanRequest& request, const PlanChoice& choice);

}  // namespace echelon
