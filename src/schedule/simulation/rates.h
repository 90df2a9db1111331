// The properties of a schedule: its cost, its bubble and the activations that it stores.
#pragma once

#include "schedule/simulation/simulate_schedule.h"

#include <vector>

namespace echelon {

/// The longest time of a rank from the start of its first pass to the end of its last: the cost of Qi et al. 2023
/// (arXiv:2401.10241), table 5.
[[nodiscard]] double longest_rank(const Timeline& timeline, int num_ranks);

/// (cost - m (F + B + W)) / cost, the bubble rate of that table; 0 where nothing takes time.
[[nodiscard]] double bubble_rate(double cost, int num_microbatches, const PassTimes& times);

/// [rank] the most activations at a time, in microbatches of a rank's share of the model. A forward of one of v stages
/// takes 1/v. The gradient of its input frees (1 - weight_memory) of that, the gradient of its weights the rest; a
/// fused backward frees all.
[[nodiscard]] std::vector<double> peak_memory(const Schedule& schedule, double weight_memory);

}  // namespace echelon
