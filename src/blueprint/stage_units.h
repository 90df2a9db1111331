// Which units a stage has, by kind. Units of one kind differ in their place in the model alone, so one of them is
// traced and stands for all; what a stage or a rank computes, sends and holds is folded over its units.
#pragma once

#include "executor/unit_part.h"
#include "schedule/lowering/lower.h"
#include "spec/model_spec.h"
#include "spec/recompute.h"
#include "spec/stage_layout.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace echelon {

/// Where the weight is that embedding and head share.
enum class TiedWeight : std::uint8_t { none, of_one_stage, of_two_stages, of_two_ranks };
[[nodiscard]] TiedWeight tied_weight_of(const ModelSpec& model, const std::vector<int>& rank_of_stage);

/// So many units of one kind, one after the other.
struct UnitRun {
  UnitKind kind;
  std::int64_t count = 0;
};

/// visit(kind, count) for the units of a stage in the order of the forward pass, without a tied weight. Where a model
/// has several kinds of blocks (dense, windowed, mixture of experts), this function and ModelSpec say which layer is of
/// which.
template <class Visit>
void for_units(const StageLayers& layers, const ModelSpec& model, const Recompute& recompute, TiedWeight tied,
               const Visit& visit) {
  using Role = UnitKind::Role;
  if (layers.has_embedding) visit(UnitKind{.role = Role::embedding}, std::int64_t{1});
  const std::int64_t recomputed = recompute.operations.empty() ? 0 : std::min(layers.num_layers, recompute.num_blocks);
  for (std::int64_t i = 0; i < layers.num_layers;) {
    const std::int64_t layer = layers.first_layer + i, end_of_kind = model.end_of_kind_from(layer),
                       end =
                           std::min(i < recomputed ? recomputed : layers.num_layers, end_of_kind - layers.first_layer);
    visit(UnitKind{.role = Role::block,
                   .recompute = i < recomputed ? recompute.operations : BlockOperations(),
                   .layer = model.kind_of(layer)},
          end - i);
    i = end;
  }
  // With two stages, neither may overwrite the weight's gradient by a matmul: schedules take them in any order.
  const bool is_overwritten_by_first_matmul = tied == TiedWeight::of_one_stage || tied == TiedWeight::of_two_ranks;
  if (layers.has_head)
    visit(UnitKind{.role = Role::head, .is_overwritten_by_first_matmul = is_overwritten_by_first_matmul},
          std::int64_t{1});
}

struct StageUnits {
  StageLayers layers;
  std::vector<UnitRun> runs;  // in the order of the forward pass
  // As unit num_units(): its copy, or that of the first stage, which is on the same rank, if it borrows it.
  bool has_tied_weight = false, borrows_tied_weight = false;
  UnitKind tied_weight = {};  // of that unit

  [[nodiscard]] int num_units() const;
  [[nodiscard]] const UnitKind& kind(int unit) const;
};

/// The units of a model's stages.
[[nodiscard]] std::vector<StageUnits> units_of(const std::vector<StageLayers>& layout, const ModelSpec& model,
                                               const Recompute& recompute, TiedWeight tied);

/// What lowering must know of stages. `sums_replicas(kind)`: whether a unit has gradients that are partial over tp.
template <class SumsReplicas>
[[nodiscard]] std::vector<StageShape> stage_shapes(const std::vector<StageUnits>& stages,
                                                   const SumsReplicas& sums_replicas) {
  std::vector<StageShape> shapes;
  for (const StageUnits& stage : stages) {
    StageShape& shape = shapes.emplace_back();
    shape.num_units = stage.num_units();
    shape.has_tied_weight = stage.has_tied_weight;
    shape.borrows_tied_weight = stage.borrows_tied_weight;
    for (const UnitRun& run : stage.runs)
      shape.unit_sums_replicas.insert(shape.unit_sums_replicas.end(), static_cast<std::size_t>(run.count),
                                      sums_replicas(run.kind));
    shape.unit_sums_replicas.push_back(stage.has_tied_weight && sums_replicas(stage.tied_weight));
  }
  return shapes;
}

}  // namespace echelon
