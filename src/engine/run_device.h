// The device of each rank of a run, as its config asks for it.
#pragma once

#include "backend/backend.h"
#include "blueprint/blueprint.h"
#include "comm/launch/run_ranks.h"
#include "engine/rank_memory.h"
#include "spec/config/run_config.h"

namespace echelon {

/// Called by every rank on its own thread; `host` must outlive the device. `num_threads`: of the host, that this rank
/// has. Throws Error, on all ranks the same, if the arenas of those that share a device are larger than its memory.
[[nodiscard]] std::unique_ptr<RankDevice> open_device(Backend& backend, const Blueprint& blueprint, Mesh& host,
                                                      int num_threads, ProductRequest products = {});

/// Lets the device's communication use a rank's arena in place where it can. All ranks of a run call it.
void use_arena(RankDevice& device, const RankMemory& memory);

/// Which kernels a run's matmuls ask for: those of `saved`, RankDevice::products() of the run that it continues, then
/// those of the machine's file. Throws Error if that file cannot be read.
[[nodiscard]] ProductRequest product_request(const RunConfig& config, const ProductNames& saved = {});

/// The recorder of a run with training.cuda_graphs, else null. Throws Error if the device has none.
[[nodiscard]] WorkRecorder* recorder_of(RankDevice& device, const RunConfig& config);

/// With training.device = cuda where that is what `auto` found: the sizes that a config leaves open depend on it.
[[nodiscard]] RunConfig with_device(RunConfig config, DeviceKind found);

/// For ranks that compute on CPUs: throws Error if the arenas of those on this machine together are larger than its
/// memory.
void require_host_memory(const Blueprint& blueprint, const RankPlacement& placement, const Backend& backend);

}  // namespace echelon
