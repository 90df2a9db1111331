// Layouts drawn at random: models, formats, axes, levels, schedules, recomputation, batches.
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

/// It may contradict itself; reading it as a config says so.
[[nodiscard]] DrawnLayout draw_layout(std::mt19937_64& numbers);

}  // namespace echelon
