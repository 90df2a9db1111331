// The backend of processors: a rank computes where its thread runs, in the host's memory, and talks through the host's
// mesh.
#pragma once

#include "backend/backend.h"

namespace echelon {

/// `remark` stands in the descriptions of devices: why these are no GPUs, where somebody may wonder.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(std::string remark = "");

}  // namespace echelon
