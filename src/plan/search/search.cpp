// Best first: a heap of sets of layouts by their bounds. The first one is taken apart or bounded better, until a layout
// that was timed comes first; nothing that is left can be better than it. So the answer is that of timing all.
#include "plan/search/search.h"

#include "base/error.h"
#include "plan/search/cost.h"
#include "plan/search/good_plans.h"
#include "plan/search/other_formats.h"
#include "plan/search/suggestions.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

// Of a limit, to prove which layouts are best; the rest is for good ones.
constexpr double share_of_proof = 0.5;

constexpr double listed_seconds = 5e-5;  // what the digits of a table tell apart

void drop_found(PlanHeap& heap, const std::set<PlanDegrees>& found) {
  while (!heap.empty() && found.contains(degrees_of(heap.top()))) heap.pop();
}

void count(PlanResult& result, const PlanCounts& counts) {
  result.num_evaluated = counts.num_evaluated;
  result.num_played = counts.num_played;
  result.num_stepped = counts.num_stepped;
  result.work = counts.work;
}

PlanResult search(PlanTables& tables, bool must_fit, int wanted) {
  const PlanRequest& request = tables.request;
  PlanTree tree(tables, must_fit);
  PlanResult result;
  result.num_configurations = tree.space().num_configurations();
  PlanHeap open = tree.roots();
  PlanHeap& timed = tree.timed();
  std::set<PlanDegrees> found;
  SearchLimit limit(request, tree);
  const SearchLimit::End end = limit.after(share_of_proof);
  while (static_cast<int>(result.plans.size()) < wanted) {
    drop_found(open, found);
    drop_found(timed, found);
    const bool is_open = !open.empty() && (timed.empty() || is_behind(request, timed.top().key, open.top().key));
    if (is_open && result.is_complete && !limit.is_before(end)) {
      result.is_complete = false;
      tree.separate_parts(open);
      find_good_plans({request, tree, limit, open, found}, wanted);
      continue;
    }
    if (is_open && result.is_complete) {
      const std::unique_ptr<PlanNode> next = open.pop();
      next->grade == PlanGrade::shape ? tree.expand_to_parts(*next, open) : tree.expand(*next, open);
      continue;
    }
    if (timed.empty()) break;
    const PlanNode& best = timed.top().pushed();
    if (result.plans.empty() && !open.empty()) result.within = std::max(0.0, 1 - open.top().key.first / best.key.first);
    if (result.is_complete) ++result.num_proven;
    found.insert(degrees_of(best));
    result.plans.push_back(tree.take_plan(best));
  }
  count(result, tree.counts());
  const double now = request.clock();
  result.seconds = now - std::exchange(tables.since, now);
  return result;
}

/// Stages that one pipeline rank has instead of one are listed only where that shows in the table's seconds.
std::optional<Plan> in_one_stage(const Plan& plan, const PlanRequest& request) {
  PlanChoice choice = plan.choice;
  if (choice.shape.pp > 1 || choice.pipeline.num_virtual == 1 || choice.recompute.num_blocks > 0) return std::nullopt;
  const PlanSpace space(request);
  const std::vector<PlanPipeline>& all = space.pipelines(choice.shape);
  const auto plain = std::ranges::find_if(all, [](const PlanPipeline& each) { return each.num_virtual == 1; });
  if (plain == all.end()) return std::nullopt;
  choice.pipeline = *plain;
  Plan other = evaluate(space, request, choice);
  const double longer = other.outcome.step_seconds - plan.outcome.step_seconds;
  if (!other.outcome.fits() || longer >= listed_seconds) return std::nullopt;
  return other;
}

std::optional<Plan> in_default_order(const Plan& plan, const PlanRequest& request) {
  if (plan.choice.order == AxisOrder() || request.fixes("parallelism.order")) return std::nullopt;
  PlanChoice choice = plan.choice;
  choice.order = {};
  return evaluate(PlanSpace(request), request, choice);
}

/// In as much work as the search for all.
std::optional<Plan> without_context(const Plan& best, const PlanRequest& request, KnownParts& known) {
  constexpr std::string_view key = "parallelism.context_parallel_degree";
  if (best.choice.shape.cp == 1 || request.fixes(key)) return std::nullopt;
  const PlanSpace space(request);
  if (std::ranges::none_of(space.shapes(), [](const PlanShape& shape) { return shape.cp == 1; })) return std::nullopt;
  PlanRequest whole = request;
  whole.fixed.emplace(key);
  whole.top = 1;
  PlanTables tables(whole, &known);
  PlanResult result = search(tables, true, 1);
  if (result.plans.empty()) return std::nullopt;
  return std::move(result.plans.front());
}

}  // namespace

PlanResult find_fitting_plans(const PlanRequest& request, KnownParts* known) {
  PlanTables tables(request, known);
  return search(tables, true, request.top);
}

PlanResult find_plans(const PlanRequest& request) {
  KnownParts known;
  PlanTables tables(request, &known);
  PlanResult result =
      request.objective == PlanObjective::cost ? find_cheapest_plans(request) : search(tables, true, request.top);
  if (request.objective != PlanObjective::memory)
    for (Plan& plan : result.plans)
      if (std::optional<Plan> plain = in_one_stage(plan, request)) plan = *std::move(plain);
  if (!result.plans.empty()) {
    result.in_default_order = in_default_order(result.plans.front(), request);
    // A search that has ended may not have seen it.
    const bool is_better = result.in_default_order && result.in_default_order->outcome.fits() &&
                           result.in_default_order->outcome.step_seconds < result.plans.front().outcome.step_seconds;
    if (is_better && request.objective == PlanObjective::time) {
      result.plans.front() = std::move(*result.in_default_order);
      result.in_default_order.reset();
    }
    result.without_context = without_context(result.plans.front(), request, known);
    result.in_other_formats = in_other_formats(result.plans.front(), request);
    return result;
  }
  PlanResult any = search(tables, false, 1);
  result.is_complete &= any.is_complete;
  require(!any.plans.empty(), "no layout was found with --work={} and --seconds={} (use 0 for no limit)", request.work,
          request.seconds);
  result.nearest = std::move(any.plans.front());
  result.num_evaluated += any.num_evaluated;
  result.seconds += any.seconds;
  result.suggestions = suggestions_for(request, known);
  return result;
}

}  // namespace echelon
