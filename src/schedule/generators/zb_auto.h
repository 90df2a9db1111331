// Automatic zero bubble: an order of F, B and W found for measured times under a limit of memory (Qi et al. 2023,
// arXiv:2401.10241, section 3).
#pragma once

#include "schedule/simulation/simulate_schedule.h"

namespace echelon {

/// Memory in microbatches of one rank's activations (the paper's M_B). A forward takes 1, the gradient of the input
/// frees 1 - weight_memory, that of the weights the rest.
struct MemoryLimit {
  double limit = 0;
  double weight_memory = 1;  // M_W / M_B
};

/// ZB-1p with a limit of p, ZB-2p with 2p: the cheapest order of a grid of greedy ones and of the handcrafted ones that
/// keep to the limit, which is 1 at least.
[[nodiscard]] Schedule zb_auto_schedule(int num_ranks, int num_microbatches, const PassTimes& times,
                                        const MemoryLimit& memory);

}  // namespace echelon
