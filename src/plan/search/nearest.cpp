#include "plan/search/nearest.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

constexpr std::int64_t most_work_of_proof = 4'000'000;
constexpr int most_dives = 8;

bool is_behind(PlanTree& tree, const PlanHeap& open) {
  return !open.empty() && (tree.timed().empty() || open.top().key < tree.timed().top().key);
}

/// Whether nothing that is left needs less than the best of those that were timed.
bool prove(PlanTree& tree, PlanHeap& open) {
  while (is_behind(tree, open) && tree.counts().work < most_work_of_proof) {
    if (tree.bound_first(open)) continue;
    const std::unique_ptr<PlanNode> next = open.pop();
    next->grade == PlanGrade::shape ? tree.expand_to_parts(*next, open) : tree.expand(*next, open);
  }
  return !is_behind(tree, open);
}

/// From each of the lowest sets down to a layout: of what a set is taken apart into, the lowest of the smallest sets.
void dive(PlanTree& tree, PlanHeap& open) {
  for (int i = 0; i < most_dives && !open.empty(); ++i)
    for (std::unique_ptr<PlanNode> lowest = open.pop(); lowest != nullptr;) {
      PlanHeap children;
      tree.expand(*lowest, children);
      const auto smallest = std::ranges::max_element(children.entries(), {}, &PlanHeap::Entry::grade);
      if (smallest == children.entries().end()) break;
      lowest = children.extract([grade = smallest->grade()](const auto& each) { return each.grade() == grade; }).pop();
    }
}

}  // namespace

NearestPlan find_nearest_plan(PlanTables& tables) {
  PlanTree tree(tables, false);
  PlanHeap open = tree.roots();
  const bool is_proven = prove(tree, open);
  if (!is_proven) dive(tree, open);
  require(!tree.timed().empty(), "no layout of {} on --gpus={} was timed", name_of(tables.request.base.model.family),
          tables.request.num_devices);
  return {tree.take_plan(tree.timed().top().pushed()), is_proven, tree.counts().num_evaluated};
}

}  // namespace echelon
