// Layouts with little in common, which resume each other's checkpoints.
#pragma once

#include "spec/config/run_config.h"

#include <functional>
#include <vector>

namespace echelon::testing {

enum class Place : std::uint8_t { threads, processes, emulated_gpu };

struct NamedLayout {
  const char* name;
  std::function<void(ParallelConfig& p)> set;
  Place place = Place::threads;
};

/// Fifteen that have little in common; in each list the first one is one rank.
[[nodiscard]] const std::vector<NamedLayout>& layouts();

/// On documents that are packed, whose token lists, positions and balanced batches are part of what is resumed.
[[nodiscard]] const std::vector<NamedLayout>& layouts_of_documents();

/// Of a mixture of experts, whose stacked weights are cut along another dim by each axis. The last three mix most axes.
[[nodiscard]] const std::vector<NamedLayout>& layouts_of_experts();

/// Of one with latent attention, and all axes.
[[nodiscard]] const std::vector<NamedLayout>& layouts_of_latents();

/// Of adapters, of which one half is cut as its linear layer is.
[[nodiscard]] const std::vector<NamedLayout>& layouts_of_adapters();

}  // namespace echelon::testing
