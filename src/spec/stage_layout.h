// Which layers lie on which pipeline stage: a pure function of the config.
#pragma once

#include <cstdint>
#include <vector>

namespace echelon {

struct StageLayers {
  std::int64_t first_layer = 0;
  std::int64_t num_layers = 0;
  bool has_embedding = false;  // the first stage
  bool has_head = false;       // the last stage
  bool operator==(const StageLayers&) const = default;
};

/// Decoder layers spread as evenly as they go, the earlier stages taking the remainder, or as `layers_per_stage` says when it is not empty.
/// Throws Error if a stage would be left without a layer or the sums differ.
[[nodiscard]] std::vector<StageLayers> stage_layout(std::int64_t num_layers, int num_stages, const std::vector<std::int64_t>& layers_per_stage = {});

}  // namespace echelon
