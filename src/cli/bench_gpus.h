// What `echelon bench --device=cuda` makes of its measurements: a machine file for plan, simulate and metrics.machine.
#pragma once

#include "measure/measure_device.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

/// One node with the devices of this host: their rates as measured; peaks, links and network of the shipped machine
/// with such a GPU, where there is one.
[[nodiscard]] MachineSpec measure_gpus(Backend& backend, const DeviceMeasurement& options);

[[nodiscard]] std::string gpus_to_text(const MachineSpec& machine);
[[nodiscard]] std::string gpus_to_json(const MachineSpec& machine);

}  // namespace echelon
