#include "spec/stage_layout.h"

#include "base/error.h"
#include "spec/layout_letters.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr std::string_view key = "parallelism.pipeline_parallel_layout";

std::vector<std::int64_t> even_split(std::int64_t num_items, int num_stages) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_stages), num_items / num_stages);
  for (std::int64_t i = 0; i < num_items % num_stages; ++i) ++counts[static_cast<std::size_t>(i)];
  return counts;
}

std::vector<std::int64_t> with_ends(std::vector<std::int64_t> decoder_layers) {
  ++decoder_layers.front();
  ++decoder_layers.back();
  return decoder_layers;
}

/// Layers per stage, embedding and head included.
std::vector<std::int64_t> default_counts(std::int64_t num_layers, int num_stages) {
  require(num_layers + 2 >= num_stages,
          "parallelism.pipeline_parallel_degree x virtual_stages = {} is more than model.num_hidden_layers = {} with "
          "embedding and head, so a stage would have no layer (use {})",
          num_stages, num_layers, num_layers + 2);
  return num_layers >= num_stages ? with_ends(even_split(num_layers, num_stages))
                                  : even_split(num_layers + 2, num_stages);
}

/// Megatron's letters for stages with these numbers of layers.
std::string letters_of(const std::vector<std::int64_t>& counts) {
  std::string letters;
  for (const std::int64_t count : counts)
    letters += (letters.empty() ? "" : "|") + std::string(static_cast<std::size_t>(count), 't');
  letters.front() = 'E';
  letters.back() = 'L';
  return letters;
}

/// The even layout, in the notation that the user chose.
std::string closest_layout(std::int64_t num_layers, int num_stages, const PipelineLayout& layout) {
  if (num_layers + 2 < num_stages) return "fewer stages";
  const std::vector<std::int64_t> counts = default_counts(num_layers, num_stages);
  return layout.letters.empty() ? fmt::format("[{}]", fmt::join(counts, ", ")) : "'" + letters_of(counts) + "'";
}

std::vector<std::int64_t> check_counts(const std::vector<std::int64_t>& counts, std::int64_t num_layers,
                                       const std::string& closest) {
  for (const std::int64_t count : counts)
    require(count >= 0 && count <= num_layers + 2, "{} = [{}] has a stage with {} layers (use {})", key,
            fmt::join(counts, ", "), count, closest);
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  require(
      sum == num_layers || sum == num_layers + 2,
      "{} = [{}] adds up to {} layers but model.num_hidden_layers = {}, which are {} with embedding and head (use {})",
      key, fmt::join(counts, ", "), sum, num_layers, num_layers + 2, closest);
  const std::vector<std::int64_t> all = sum == num_layers ? with_ends(counts) : counts;
  const bool is_full = std::all_of(all.begin(), all.end(), [](std::int64_t count) { return count >= 1; }) &&
                       (all.size() > 1 || all[0] >= 2);
  require(is_full, "{} = [{}] has a stage with 0 layers, and a stage without layers is not supported (use {})", key,
          fmt::join(counts, ", "), closest);
  return all;
}

std::vector<std::int64_t> counts_of_letters(const std::string& text, std::int64_t num_layers,
                                            const std::string& closest) {
  const std::vector<std::string> stages = layout_letters(text);
  std::string all;
  std::vector<std::int64_t> counts;
  for (const std::string& letters : stages) {
    require(!letters.empty(),
            "{} = '{}' has no layer on stage {} of {}, and a stage without layers is not supported (use {})", key, text,
            counts.size(), stages.size(), closest);
    counts.push_back(static_cast<std::int64_t>(letters.size()));
    all += letters;
  }
  const bool is_model = all == "E" + std::string(static_cast<std::size_t>(num_layers), 't') + "L";
  require(is_model,
          "{} = '{}' has {} E, {} t and {} L, which must be one E, model.num_hidden_layers = {} t and one L in this "
          "order (use {})",
          key, text, std::count(all.begin(), all.end(), 'E'), std::count(all.begin(), all.end(), 't'),
          std::count(all.begin(), all.end(), 'L'), num_layers, closest);
  return counts;
}

std::vector<std::int64_t> layer_counts(std::int64_t num_layers, int num_stages, const PipelineLayout& layout) {
  if (layout.empty()) return default_counts(num_layers, num_stages);
  const int named = num_stages_of(layout);
  const std::string closest = closest_layout(num_layers, num_stages, layout);
  require(named == num_stages,
          "{} = {} names {} stages but parallelism.pipeline_parallel_degree x virtual_stages make {} (use {})", key,
          layout.letters.empty() ? fmt::format("[{}]", fmt::join(layout.counts, ", ")) : "'" + layout.letters + "'",
          named, num_stages, closest);
  return layout.letters.empty() ? check_counts(layout.counts, num_layers, closest)
                                : counts_of_letters(layout.letters, num_layers, closest);
}

}  // namespace

int num_stages_of(const PipelineLayout& layout) {
  return static_cast<int>(layout.letters.empty() ? layout.counts.size() : layout_letters(layout.letters).size());
}

std::vector<StageLayers> stage_layout(std::int64_t num_layers, int num_stages, const PipelineLayout& layout) {
  require(num_stages >= 1, "parallelism.pipeline_parallel_degree = {} is below 1 (use 1)", num_stages);
  std::vector<StageLayers> stages;
  std::int64_t first_layer = 0;
  for (const std::int64_t count : layer_counts(num_layers, num_stages, layout)) {
    StageLayers stage{.first_layer = first_layer, .num_layers = count, .has_embedding = stages.empty()};
    stage.has_head = static_cast<int>(stages.size()) == num_stages - 1;
    stage.num_layers -= (stage.has_embedding ? 1 : 0) + (stage.has_head ? 1 : 0);
    first_layer += stage.num_layers;
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace echelon
