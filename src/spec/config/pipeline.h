// The pipeline schedule of a config.
#pragma once

#include "spec/config/run_config.h"

namespace echelon {

/// Virtual stages of all ranks. Throws Error if the schedule does not support the config's ranks, microbatches, virtual
/// stages or layout.
[[nodiscard]] int num_pipeline_stages(const RunConfig& config);

/// The named schedule, or the schedule in parallelism.pipeline_parallel_schedule_csv. Throws the same errors.
[[nodiscard]] Schedule pipeline_schedule(const RunConfig& config);

}  // namespace echelon
