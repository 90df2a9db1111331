// The pipeline schedule that a config asks for.
#pragma once

#include "spec/config/run_config.h"

namespace echelon {

/// Virtual stages of all ranks. Throws Error if the schedule is not there for the config's ranks, microbatches, virtual
/// stages or layout.
[[nodiscard]] int num_pipeline_stages(const RunConfig& config);

/// The named schedule, or the one that is read from parallelism.pipeline_parallel_schedule_csv. Throws Error likewise.
[[nodiscard]] Schedule pipeline_schedule(const RunConfig& config);

}  // namespace echelon
