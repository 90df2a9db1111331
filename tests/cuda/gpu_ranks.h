// Thread ranks on emulated GPUs, each with a mesh whose tensors are in the host's memory, for the tests of their
// transports.
#pragma once

#include "comm/mesh.h"

#include <functional>
#include <string>

namespace echelon {

/// Runs body(mesh) on every rank, and afterwards EXPECTs that nothing on the devices waits any more.
using RunGpuRanks = void(const MeshShape&, double timeout_seconds, const std::function<void(Mesh&)>& body);
/// All have the same GPU.
RunGpuRanks run_on_one_gpu;
/// Each has its own, and NCCL. In a line, neighbours are connected.
RunGpuRanks run_on_own_gpus;

/// Of n ranks in a line: what the run throws, empty if nothing.
[[nodiscard]] std::string outcome_of(RunGpuRanks& run, int n, const std::function<void(Mesh&, Comm&)>& body,
                                     double timeout_seconds = 60);

void all_reduce(Comm& comm, std::int64_t num_elements);

}  // namespace echelon
