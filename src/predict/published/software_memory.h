// What the ranks of a software profile hold: Echelon's plan for parameters and their states, the formulas of
// Korthikanti et al. 2022 (arXiv:2205.05198, section 4) for what the software's blocks keep, and named constants for
// what libraries take.
#pragma once

#include "predict/simulation/simulate.h"

namespace echelon {

/// Bytes that a block keeps of one microbatch for its backward pass, on one rank.
[[nodiscard]] std::int64_t kept_block_bytes(const SoftwareProfile& profile, const RunConfig& config,
                                            const BlockOperations& recomputed);

/// By pipeline rank. `planned`: what Echelon itself would hold, in device_bytes the device's.
[[nodiscard]] std::vector<PredictedMemory> software_memory(const SoftwareProfile& profile, const Blueprint& blueprint,
                                                           const std::vector<PredictedMemory>& planned);

/// Blueprint, machine and software to a prediction: simulate() on what the software reaches of the machine, with the
/// memory that it holds. The one way from a config, from a row of a table and from a plan.
[[nodiscard]] Simulation simulate_software(const Blueprint& blueprint, const MachineSpec& machine,
                                           const SimulationOptions& options);

}  // namespace echelon
