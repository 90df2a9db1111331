// Which GPUs of a machine NVLink joins, so that ranks that talk most, which are neighbours in the mesh, get such.
#pragma once

#include <functional>
#include <vector>

namespace echelon::cuda {

/// The GPUs 0 .. num_gpus - 1, island after island: those that are linked, directly or through others, follow each
/// other. Islands of more GPUs come first; else it is CUDA's order.
[[nodiscard]] std::vector<int> order_by_islands(int num_gpus, const std::function<bool(int, int)>& are_linked);

/// Whether two GPUs that this process sees are joined by NVLink: they reach each other's memory, atomics included,
/// which PCIe does not carry between GPUs.
[[nodiscard]] bool are_linked_by_nvlink(int a, int b);

}  // namespace echelon::cuda
