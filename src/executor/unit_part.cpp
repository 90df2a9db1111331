#include "executor/unit_part.h"

namespace echelon {

ModelPart make_unit_part(const RunConfig& config, int rank, const UnitKind& kind) {
  using Role = UnitKind::Role;
  const bool is_embedding = kind.role == Role::embedding || (kind.role == Role::tied_weight && !kind.is_head_copy);
  ModelPart part;
  part.options = layer_options(config, rank);
  part.options.recompute = {.operations = kind.recompute};
  part.options.model = config.model.with_layers_of(kind.layer);
  part.rank_of_stage = {0};
  if (kind.has_copy) part.rank_of_stage.push_back(1);
  part.pipeline_rank = kind.is_head_copy ? 1 : 0;
  const StageLayers layers = {.num_layers = kind.role == Role::block ? 1 : 0,
                              .has_embedding = is_embedding,
                              .has_head = kind.role != Role::block && !is_embedding};
  const StagePart& stage = add_stage(part, config, rank, part.pipeline_rank, layers, nullptr);
  if (Param* const tied_weight = stage.stage->tied_weight())
    tied_weight->is_overwritten_by_first_matmul = kind.is_overwritten_by_first_matmul;
  return part;
}

ShardedUnit& unit_of(ModelPart& part, const UnitKind& kind) {
  return part.stages.front().units[kind.role == UnitKind::Role::tied_weight ? 1 : 0];
}

UnitKind kind_of_state(UnitKind kind) {
  kind.recompute = {};
  kind.layer = {.has_experts = kind.layer.has_experts};
  if (kind.role == UnitKind::Role::head) kind.is_overwritten_by_first_matmul = false;
  return kind;
}

}  // namespace echelon
