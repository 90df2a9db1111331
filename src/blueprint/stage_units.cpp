#include "blueprint/stage_units.h"

namespace echelon {

int StageUnits::num_units() const {
  std::int64_t sum = 0;
  for (const UnitRun& run : runs) sum += run.count;
  return static_cast<int>(sum);
}

const UnitKind& StageUnits::kind(int unit) const {
  for (const UnitRun& run : runs) {
    if (unit < run.count) return run.kind;
    unit -= static_cast<int>(run.count);
  }
  return tied_weight;
}

TiedWeight tied_weight_of(const ModelSpec& model, const std::vector<int>& rank_of_stage) {
  if (!model.tie_word_embeddings) return TiedWeight::none;
  if (rank_of_stage.size() == 1) return TiedWeight::of_one_stage;
  return rank_of_stage.front() == rank_of_stage.back() ? TiedWeight::of_two_stages : TiedWeight::of_two_ranks;
}

std::vector<StageUnits> units_of(const std::vector<StageLayers>& layout, const ModelSpec& model,
                                 const Recompute& recompute, TiedWeight tied) {
  std::vector<StageUnits> stages;
  for (const StageLayers& layers : layout) {
    StageUnits& stage = stages.emplace_back(StageUnits{.layers = layers, .runs = {}});
    for_units(layers, model, recompute, tied, [&](const UnitKind& kind, std::int64_t count) {
      stage.runs.push_back({kind, count});
    });
    if (tied == TiedWeight::none || (!layers.has_embedding && !layers.has_head)) continue;
    stage.borrows_tied_weight = tied == TiedWeight::of_two_stages && !layers.has_embedding;
    stage.has_tied_weight = !stage.borrows_tied_weight;
    const bool has_copy = tied == TiedWeight::of_two_ranks, is_head_copy = has_copy && !layers.has_embedding;
    stage.tied_weight = {.role = UnitKind::Role::tied_weight,
                         .has_copy = has_copy,
                         .is_head_copy = is_head_copy,
                         .is_overwritten_by_first_matmul = is_head_copy || tied == TiedWeight::of_one_stage};
  }
  return stages;
}

}  // namespace echelon
