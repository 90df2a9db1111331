// `simulate` for a machine that is a host: its ranks are threads.
#pragma once

#include "predict/simulation/simulate.h"

namespace echelon {

[[nodiscard]] Simulation simulate_on_host(const Blueprint& blueprint, const HostSpec& host,
                                          const SimulationOptions& options);

}  // namespace echelon
