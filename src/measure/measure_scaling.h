// What several cores reach together, in multiples of one: of multiply-adds in registers, which share no cache, and of a
// large matmul, whose own loss is the ratio of the two.
#pragma once

#include "measure/measure_rates.h"
#include "spec/machine/host_spec.h"

#include <vector>

namespace echelon {

struct CoreScaling {
  int num_cores = 1;
  int threads_per_core = 1;
  RateInRounds multiply_adds = {};  // of all these threads, in multiples of one thread of one core
  RateInRounds matmul = {};         // float32; 0 with several threads per core, which matmuls do not use
};

/// On 2, 4, 8 ... and all of `cores`, each with its hardware threads, and once with all of these. Of each turn, in
/// which one core and several are measured one right after the other, a ratio is taken, and of the ratios the median.
/// Each number of cores takes about `seconds` four times.
[[nodiscard]] std::vector<CoreScaling> measure_scaling(const std::vector<std::vector<int>>& cores, double seconds,
                                                       const MatmulRate& matmul);

}  // namespace echelon
