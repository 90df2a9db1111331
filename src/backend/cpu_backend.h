// The CPU backend: a rank computes on its own thread, in the host's memory, and communicates through the host's mesh.
#pragma once

#include "backend/backend.h"

namespace echelon {

/// `remark` is part of the description of a device: why GPUs are not used, if a user may expect them.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(std::string remark = "");

}  // namespace echelon
