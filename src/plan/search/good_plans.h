// Good layouts where the limit of a search comes before a proof.
#pragma once

#include "plan/search/limit.h"

#include <set>

namespace echelon {

/// An unfinished search. It refers to all of it.
struct OpenSearch {
  const PlanRequest& request;
  PlanTree& tree;
  SearchLimit& limit;
  PlanHeap& open;                      // what is left to take apart
  const std::set<PlanDegrees>& found;  // the degrees of the plans that are proven best
};

/// Whether something that is not timed yet may be better by more than is asked for.
[[nodiscard]] bool is_behind(const PlanRequest& request, const PlanKey& timed, const PlanKey& bound);

/// The limit is reached: descends by the lowest bounds from the lowest set of each way to lay out the model, then from
/// the lowest sets of the best degrees, and from what experts choose. The best layouts found are timed, and `wanted`
/// triples of degrees at least are made better. The first bound in `open` still says how much better another layout
/// could be.
void find_good_plans(const OpenSearch& search, int wanted);

}  // namespace echelon
