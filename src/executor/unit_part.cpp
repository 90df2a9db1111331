#include "executor/unit_part.h"

namespace echelon {

UnitKind unit_kind(const ModelPart& part, const StagePart& stage, int unit) {
  using Role = UnitKind::Role;
  const Param* const tied_weight = stage.stage->tied_weight();
  const bool is_formed_by_product = tied_weight != nullptr && tied_weight->is_formed_by_product;
  if (unit == stage.stage->num_units())
    return {.role = Role::tied_weight,
            .has_copy = part.rank_of_stage.front() != part.rank_of_stage.back(),
            .is_head_copy = stage.stage->has_tied_weight() && !stage.is_first(),
            .is_formed_by_product = is_formed_by_product};
  const int block = unit - (stage.layers.has_embedding ? 1 : 0);
  if (block < 0) return {.role = Role::embedding};
  if (block < stage.layers.num_layers)
    return {.role = Role::block, .recompute = part.options.recompute.of_block(block)};
  return {.role = Role::head, .is_formed_by_product = is_formed_by_product};
}

ModelPart make_unit_part(const RunConfig& config, int rank, const UnitKind& kind) {
  using Role = UnitKind::Role;
  const bool is_embedding = kind.role == Role::embedding || (kind.role == Role::tied_weight && !kind.is_head_copy);
  ModelPart part;
  part.options = layer_options(config, rank);
  part.options.recompute = {.operations = kind.recompute};
  part.rank_of_stage = {0};
  if (kind.has_copy) part.rank_of_stage.push_back(1);
  part.pipeline_rank = kind.is_head_copy ? 1 : 0;
  const StageLayers layers = {.num_layers = kind.role == Role::block ? 1 : 0,
                              .has_embedding = is_embedding,
                              .has_head = kind.role != Role::block && !is_embedding};
  const StagePart& stage = add_stage(part, config, rank, part.pipeline_rank, layers, nullptr);
  if (Param* const tied_weight = stage.stage->tied_weight())
    tied_weight->is_formed_by_product = kind.is_formed_by_product;
  return part;
}

}  // namespace echelon
