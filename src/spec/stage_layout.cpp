#include "spec/stage_layout.h"

#include "base/error.h"

#include <numeric>

namespace echelon {
namespace {

std::vector<std::int64_t> even_split(std::int64_t num_layers, int num_stages) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_stages), num_layers / num_stages);
  for (std::int64_t i = 0; i < num_layers % num_stages; ++i) ++counts[static_cast<std::size_t>(i)];
  return counts;
}

void check_layout(const std::vector<std::int64_t>& layout, std::int64_t num_layers, int num_stages) {
  require(layout.size() == static_cast<std::size_t>(num_stages),
          "parallelism.pipeline_parallel_layout = [{}] names {} stages but parallelism.pipeline_parallel_degree = {}; give one number of layers per stage",
          fmt::join(layout, ", "), layout.size(), num_stages);
  for (const std::int64_t count : layout)
    require(count >= 1, "parallelism.pipeline_parallel_layout = [{}] has a stage with {} layers; each stage needs at least 1", fmt::join(layout, ", "), count);
  const std::int64_t sum = std::accumulate(layout.begin(), layout.end(), std::int64_t{0});
  require(sum == num_layers, "parallelism.pipeline_parallel_layout = [{}] adds up to {} layers but model.num_hidden_layers = {}; nearest: [{}]",
          fmt::join(layout, ", "), sum, num_layers, fmt::join(even_split(num_layers, num_stages), ", "));
}

}  // namespace

std::vector<StageLayers> stage_layout(std::int64_t num_layers, int num_stages, const std::vector<std::int64_t>& layers_per_stage) {
  require(num_stages >= 1, "parallelism.pipeline_parallel_degree = {} is below 1; nearest: 1", num_stages);
  require(num_layers >= num_stages,
          "parallelism.pipeline_parallel_degree = {} is more than model.num_hidden_layers = {}, so a stage would have no layer; nearest: {}", num_stages,
          num_layers, num_layers);
  if (!layers_per_stage.empty()) check_layout(layers_per_stage, num_layers, num_stages);
  const std::vector<std::int64_t> counts = layers_per_stage.empty() ? even_split(num_layers, num_stages) : layers_per_stage;

  std::vector<StageLayers> stages;
  std::int64_t first_layer = 0;
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::int64_t count = counts[static_cast<std::size_t>(stage)];
    stages.push_back({.first_layer = first_layer, .num_layers = count, .has_embedding = stage == 0, .has_head = stage == num_stages - 1});
    first_layer += count;
  }
  return stages;
}

}  // namespace echelon
