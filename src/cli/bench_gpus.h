// Builds a machine file for plan, simulate and metrics.machine from the measurements of `echelon bench --device=cuda`.
#pragma once

#include "measure/measure_device.h"
#include "spec/machine/machine_spec.h"

#include <nlohmann/json_fwd.hpp>

namespace echelon {

/// One node with the devices of this host and their measured rates. Peaks, links and network come from a shipped
/// machine with the same GPU, if any.
[[nodiscard]] MachineSpec measure_gpus(Backend& backend, const DeviceMeasurement& options);

[[nodiscard]] std::string gpus_to_text(const MachineSpec& machine);
[[nodiscard]] std::string gpus_to_json(const MachineSpec& machine);
[[nodiscard]] nlohmann::ordered_json to_json(const DiskSpec& disk);

}  // namespace echelon
