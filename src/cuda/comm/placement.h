// Which GPU a rank gets, and whether it has it alone. Ranks of a host take its GPUs in their order, those that NVLink
// joins one after the other (nvlink.h); where there are fewer, they share one.
#pragma once

#include "comm/mesh.h"

#include <cstdint>
#include <string>
#include <vector>

namespace echelon::cuda {

/// Where a rank is, as far as it matters to GPUs.
struct RankSite {
  std::int64_t host = 0;      // the same number on the same host
  std::int32_t process = 0;   // of that host
  std::int32_t num_gpus = 0;  // that the process sees; launchers may show each process its own
};

/// The GPU of a rank: its place among those that its process sees, in the order of nvlink.h.
[[nodiscard]] int choose_gpu(const std::vector<RankSite>& sites, int rank);

/// What tells a GPU of a host from others: its address and, for a slice of it (MIG), the entry of
/// CUDA_VISIBLE_DEVICES, since slices share an address. `visible`: the variable, null if it is not set.
[[nodiscard]] std::string identity_of_gpu(const std::string& address, const char* visible, int index);

struct Placement {
  int index = 0;                 // of this rank's GPU
  std::int64_t gpu = 0;          // the same number for the same GPU, whatever a process calls it
  int num_sharing = 1;           // ranks that have it
  bool has_each_its_own = true;  // no two ranks of the mesh have the same GPU
};

/// Collective over the host's mesh.
[[nodiscard]] Placement place_on_gpu(Mesh& host);

}  // namespace echelon::cuda
