// By which kernels a run will multiply, as far as that is known before it starts.
#pragma once

#include "engine/run_device.h"
#include "spec/config/run_config.h"

namespace echelon {

/// What train() will ask for on CPUs, if the newest checkpoint can be read. What is computed in this process before the
/// run is computed with these kernels too, since OpenBLAS is loaded once.
[[nodiscard]] ProductRequest products_of_run(const RunConfig& config);

}  // namespace echelon
