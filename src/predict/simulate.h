// Times one step of a blueprint on a machine without running it: discrete events over the lowered programs.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/software_profile.h"
#include "schedule/timeline.h"
#include "spec/machine_spec.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

struct SimulationOptions {
  SoftwareProfile profile = {};
  std::map<int, double> slow_ranks = {};  // factors of the time of what they compute
};

/// Where the time of a step goes on the rank that ends it; adds up to the step.
struct StepParts {
  double compute_seconds = 0;                                        // forward and backward
  std::map<std::string, double> exposed_communication_seconds = {};  // by the name of the group: what nothing hides
  double bubble_seconds = 0;                                         // waiting for other stages
  double optimizer_seconds = 0;                                      // clipping and the update
  double other_seconds = 0;
};

/// What a pipeline rank holds.
struct PredictedMemory {
  std::map<MemoryCategory, std::int64_t> category_bytes = {};  // each at the moment when it needs most
  std::int64_t arena_bytes = 0;                                // of all at the moment when they need most together
  std::int64_t device_bytes = 0;                               // what the device has
};

/// Of one training step after the first.
struct Simulation {
  double step_seconds = 0;
  StepParts parts = {};
  double model_flops = 0;                               // of the step over all ranks, as spec/model_spec.h counts them
  double hardware_flops = 0;                            // what is computed, recomputation included
  double peak_flops = 0;                                // of all devices together, in the format of the products
  std::vector<PredictedMemory> memory = {};             // by pipeline rank
  std::map<std::string, std::int64_t> sent_bytes = {};  // in one step by all ranks, by the name of the group
  Timeline timeline = {};                               // of one rank per pipeline rank; seconds

  [[nodiscard]] double mfu() const { return peak_flops > 0 ? model_flops / (peak_flops * step_seconds) : 0; }
  [[nodiscard]] double hfu() const { return peak_flops > 0 ? hardware_flops / (peak_flops * step_seconds) : 0; }
  [[nodiscard]] bool fits() const;
  [[nodiscard]] std::int64_t peak_memory_bytes() const;  // of the fullest rank
};

/// Throws Error if the machine has too few devices or no rates for the format.
[[nodiscard]] Simulation simulate(const Blueprint& blueprint, const MachineSpec& machine, const SimulationOptions& options = {});

}  // namespace echelon
