// Assigns layers to pipeline stages: a pure function of the config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace echelon {

struct StageLayers {
  std::int64_t first_layer = 0;
  std::int64_t num_layers = 0;  // decoder layers; may be 0 if the stage has the embedding or the head
  bool has_embedding = false;   // the first stage
  bool has_head = false;        // the last stage
  bool operator==(const StageLayers&) const = default;
};

/// The user's layout, in one of two notations; neither: even.
struct PipelineLayout {
  // Layers per stage, embedding and head counted as one each; or decoder layers alone.
  std::vector<std::int64_t> counts;
  // Megatron's: E embedding, t decoder layer, L head and loss; | between stages; *n repeats a letter or a (group).
  std::string letters;
  [[nodiscard]] bool empty() const { return counts.empty() && letters.empty(); }
  bool operator==(const PipelineLayout&) const = default;
};

/// How many stages the layout names; 0 if it is empty. Throws Error if its letters cannot be read.
[[nodiscard]] int num_stages_of(const PipelineLayout& layout);

/// Stages in the order in which a microbatch passes them. Without a layout, decoder layers are spread as evenly as
/// possible, and earlier stages take the remainder. If there are fewer layers than stages, embedding and head are
/// spread with them. Throws Error if a stage would be empty or the sums differ.
[[nodiscard]] std::vector<StageLayers> stage_layout(std::int64_t num_layers, int num_stages,
                                                    const PipelineLayout& layout = {});

}  // namespace echelon
