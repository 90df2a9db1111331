// Layouts as experts choose them, from which a search that has reached its limit starts.
#pragma once

#include "plan/bounds/bounds.h"

#include <vector>

namespace echelon {

/// Layouts of a shape that experts would consider: 1F1B and interleaved stages of few layers, ZeRO-1 or 3 over all data
/// ranks, and of each the least recomputation whose bytes `may_fit`.
template <class MayFit>
[[nodiscard]] std::vector<PlanChoice> expert_choices(const PlanSpace& space, const PlanShape& shape,
                                                     const MayFit& may_fit);

/// Whether experts would consider the shape.
[[nodiscard]] bool is_expert_shape(const PlanShape& shape, const PlanRequest& request);
/// Those of the shape's pipelines, and of its data-parallel configurations, that experts would consider.
[[nodiscard]] std::vector<PlanPipeline> expert_pipelines(const PlanSpace& space, const PlanShape& shape);
[[nodiscard]] std::vector<PlanData> expert_data(const PlanSpace& space, const PlanShape& shape);

template <class MayFit>
std::vector<PlanChoice> expert_choices(const PlanSpace& space, const PlanShape& shape, const MayFit& may_fit) {
  std::vector<PlanChoice> choices;
  for (const PlanPipeline& pipeline : expert_pipelines(space, shape)) {
    bool keeps_all = false;  // with less sharding: more would only communicate more
    for (const PlanData& data : expert_data(space, shape)) {
      if (keeps_all) break;
      for (const PlanRecompute& recompute : space.recomputes(pipeline)) {
        const PlanChoice choice = {shape, pipeline, recompute, data, space.orders(shape, data).front()};
        if (recompute.num_blocks > 0 || !may_fit(choice)) continue;
        keeps_all = shape.pp > 1 && recompute.operations.empty();
        choices.push_back(choice);
        break;
      }
    }
  }
  return choices;
}

}  // namespace echelon
