// The backend of processors: a rank computes where its thread runs, in the host's memory, and talks through the host's mesh.
#pragma once

#include "backend/backend.h"

namespace echelon {

[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend();

}  // namespace echelon
