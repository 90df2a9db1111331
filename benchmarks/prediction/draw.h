// Layouts drawn at random: models, formats, axes, experts, levels, schedules, recomputation, batches.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace echelon {

struct DrawnLayout {
  std::string name;                    // short, for a table
  std::vector<std::string> arguments;  // --section.key=value
  int num_ranks = 1;
};

/// It may contradict itself; reading it as a config says so. `has_experts`: of mixtures alone.
[[nodiscard]] DrawnLayout draw_layout(std::mt19937_64& numbers, bool has_experts = false);

}  // namespace echelon
