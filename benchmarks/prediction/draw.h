// Layouts drawn at random: models, formats, axes, experts, documents, levels, schedules, recomputation, batches.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace echelon {

struct DrawnLayout {
  std::string name;                    // short, for a table
  std::vector<std::string> arguments;  // --section.key=value
  int num_ranks = 1;
};

enum class LayoutKind : std::uint8_t {
  dense,
  experts,    // mixtures alone
  context,    // with context parallelism
  documents,  // likewise, and attention ends at documents
};

/// It may contradict itself; reading it as a config says so.
[[nodiscard]] DrawnLayout draw_layout(std::mt19937_64& numbers, LayoutKind kind);

}  // namespace echelon
