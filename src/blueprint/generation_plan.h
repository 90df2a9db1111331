// The memory of generation on a rank: whole parameters, but of experts its own ones; key/value caches for all
// positions, and the scratch of the longest and of the usual call.
#pragma once

#include "blueprint/memory_plan.h"
#include "nn/decoder/stage.h"

namespace echelon {

/// A model as generation needs it: all layers, one sequence, tp = 1.
struct GenerationModel {
  LayerOptions options;
  std::unique_ptr<Stage> stage;
};
/// Of `ep` ranks, which have the same tokens and some whole experts each; ep divides the experts.
struct GenerationRank {
  int ep = 1, ep_rank = 0;
};
[[nodiscard]] inline MeshShape generation_mesh(int ep) { return MeshShape({{Axis::dp_shard, ep}}); }

/// Room for `num_positions` positions, prompt included. Throws Error if the model has fewer.
[[nodiscard]] GenerationModel make_generation_model(const ModelSpec& model, DType dtype, std::int64_t num_positions,
                                                    const GenerationRank& rank = {});

/// Every parameter in the order in which generation keeps them: `index` of BufferRole::param.
[[nodiscard]] std::vector<Param*> all_params(Stage& stage);

/// `num_prompt_tokens` are computed in one call, later ones one at a time.
[[nodiscard]] MemoryPlan generation_memory(GenerationModel& model, std::int64_t num_prompt_tokens);

}  // namespace echelon
