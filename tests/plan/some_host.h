// A host as `echelon bench` describes one: three cores, which share memory's bandwidth, and waits that cost something.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

inline MachineSpec some_host() {
  HostSpec host = {.processor = "some processor", .num_cores = 3, .memory_bytes = std::int64_t{8} << 30};
  host.core = {.float32_flops = 5e10,
               .float64_flops = 2e10,
               .bfloat16_flops = 9e10,
               .sgemm_flops = 4e10,
               .copy_bandwidth = 1e10,
               .read_bandwidth = 1e10};
  host.device = {.float32_flops = 1.3e11,
                 .float64_flops = 6e10,
                 .bfloat16_flops = 2e11,
                 .sgemm_flops = 1e11,
                 .copy_bandwidth = 2e10,
                 .read_bandwidth = 2e10};
  host.all_reduce_latency_seconds = 1e-6;
  host.all_reduce_bandwidth = 2e9;
  // Small products are slower on all cores than on one.
  for (const double size : {32.0, 256.0, 2048.0}) {
    const auto n = static_cast<std::int64_t>(size);
    const double flops = 2 * size * size * size, seconds = flops / 4e10;
    host.operations["matmul"]["float32"].push_back({.m = n,
                                                    .n = n,
                                                    .k = n,
                                                    .amount = flops,
                                                    .core_seconds = seconds,
                                                    .busy_seconds = 1.1 * seconds,
                                                    .shared_seconds = seconds / 2.7 + 5e-6});
  }
  for (const std::int64_t ranks : {2, 3, 6}) {
    auto& all = host.collectives["thread"];
    all["barrier"].push_back({.num_ranks = ranks, .bytes = 0, .seconds = ranks > 3 ? 2e-5 : 1e-6});
    for (const std::int64_t bytes : {1 << 10, 1 << 16, 1 << 22})
      for (const char* kind : {"all_reduce", "reduce_scatter", "all_gather", "send"})
        all[kind].push_back(
            {.num_ranks = ranks, .bytes = bytes, .seconds = 3e-6 + 2e-10 * static_cast<double>(bytes * ranks)});
  }
  return machine_of(host);
}

}  // namespace echelon
