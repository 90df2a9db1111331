// Best first: a heap of sets of layouts by their bounds. The first one is taken apart or bounded better, until a layout
// that was timed comes first; nothing that is left can be better than it. So the answer is that of timing all.
#include "plan/search/search.h"

#include "base/error.h"
#include "plan/search/cost.h"
#include "plan/search/good_plans.h"
#include "plan/search/nothing_fits.h"
#include "plan/search/other_formats.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

// Of a limit, to prove which layouts are best; the rest is for good ones.
constexpr double share_of_proof = 0.5;

constexpr double listed_seconds = 5e-5;  // what the digits of a table tell apart

constexpr std::string_view context_degree_key = "parallelism.context_parallel_degree";

void drop_found(PlanHeap& heap, const std::set<PlanDegrees>& found) {
  while (!heap.empty() && found.contains(degrees_of(heap.top()))) heap.pop();
}

void count(PlanResult& result, const PlanCounts& counts) {
  result.num_evaluated = counts.num_evaluated;
  result.num_played = counts.num_played;
  result.num_stepped = counts.num_stepped;
  result.work = counts.work;
}

class Search {
 public:
  explicit Search(PlanTables& tables)
      : request_(tables.request), tables_(tables), tree_(tables, true), open_(tree_.roots()) {}

  /// So many more plans.
  PlanResult find(int wanted);
  /// The best plan with cp = 1; complete and empty: none fits. Afterwards nothing else can be found. `listed`: those
  /// found before, all proven best.
  PlanResult find_without_context(const std::vector<Plan>& listed);

 private:
  const PlanRequest& request_;
  PlanTables& tables_;
  PlanTree tree_;
  PlanHeap open_;
  std::set<PlanDegrees> found_;
};

PlanResult Search::find(int wanted) {
  PlanResult result;
  PlanHeap& timed = tree_.timed();
  SearchLimit limit(request_, tree_);
  const SearchLimit::End end = limit.after(share_of_proof);
  while (static_cast<int>(result.plans.size()) < wanted) {
    drop_found(open_, found_);
    drop_found(timed, found_);
    const bool is_open = !open_.empty() && (timed.empty() || is_behind(request_, timed.top().key, open_.top().key));
    if (is_open && tree_.bound_first(open_)) continue;
    if (is_open && result.is_complete && !limit.is_before(end)) {
      result.is_complete = false;
      tree_.bound_shapes(open_);
      tree_.separate_parts(open_);
      find_good_plans({request_, tree_, limit, open_, found_}, wanted);
      continue;
    }
    if (is_open && result.is_complete) {
      tree_.expand_first(open_);
      continue;
    }
    if (timed.empty()) break;
    const PlanNode& best = timed.top().pushed();
    while (request_.within > 0 && tree_.bound_first(open_)) {
    }
    if (result.plans.empty() && !open_.empty())
      result.within = std::max(0.0, 1 - open_.top().key.first / best.key.first);
    if (result.is_complete) ++result.num_proven;
    found_.insert(degrees_of(best));
    result.plans.push_back(tree_.take_plan(best));
  }
  count(result, tree_.counts());
  const double now = request_.clock();
  result.seconds = now - std::exchange(tables_.since, now);
  return result;
}

// Nothing that was looked at is looked at again: of the sets with cp = 1 those are left that a search for them alone
// would have left.
PlanResult Search::find_without_context(const std::vector<Plan>& listed) {
  const auto same = std::ranges::find_if(listed, [](const Plan& each) { return each.choice.shape.cp == 1; });
  if (same != listed.end()) {
    PlanResult result;
    result.plans.push_back(*same);
    return result;
  }
  const auto has_none = [](const PlanHeap::Entry& each) { return each.shape().cp == 1; };
  open_ = open_.extract(has_none);
  tree_.timed() = tree_.timed().extract(has_none);
  return find(1);
}

/// Stages that one pipeline rank has instead of one are listed only where that shows in the table's seconds.
std::optional<Plan> in_one_stage(const Plan& plan, const PlanSpace& space, const PlanRequest& request) {
  PlanChoice choice = plan.choice;
  if (choice.shape.pp > 1 || choice.pipeline.num_virtual == 1 || choice.recompute.num_blocks > 0) return std::nullopt;
  const std::vector<PlanPipeline>& all = space.pipelines(choice.shape);
  const auto plain = std::ranges::find_if(all, [](const PlanPipeline& each) { return each.num_virtual == 1; });
  if (plain == all.end()) return std::nullopt;
  choice.pipeline = *plain;
  Plan other = evaluate(request, choice);
  const double longer = other.outcome.step_seconds - plan.outcome.step_seconds;
  if (!other.outcome.fits() || longer >= listed_seconds) return std::nullopt;
  return other;
}

std::optional<Plan> in_default_order(const Plan& plan, const PlanRequest& request) {
  if (plan.choice.order == AxisOrder() || request.fixes("parallelism.order")) return std::nullopt;
  PlanChoice choice = plan.choice;
  choice.order = {};
  return evaluate(request, choice);
}

/// Whether the plan without context parallelism is of interest.
bool compares_context(const PlanResult& result, const PlanRequest& request) {
  return !result.plans.empty() && result.plans.front().choice.shape.cp > 1 && !request.fixes(context_degree_key);
}

/// The best plan with cp = 1, in as much work as the search for all.
std::optional<Plan> without_context(const PlanTables& tables, KnownParts& known) {
  const std::vector<PlanShape>& shapes = tables.space.shapes();
  if (std::ranges::none_of(shapes, [](const PlanShape& shape) { return shape.cp == 1; })) return std::nullopt;
  PlanRequest alone = tables.request;
  alone.fixed.emplace(context_degree_key);
  PlanTables of_alone(alone, &known);
  PlanResult result = Search(of_alone).find(1);
  if (result.plans.empty()) return std::nullopt;
  return std::move(result.plans.front());
}

/// The plans that are asked for; and, where the first one has context parallelism, the best one without.
PlanResult find_all(PlanTables& tables, KnownParts& known) {
  const PlanRequest& request = tables.request;
  if (request.objective == PlanObjective::cost) {
    PlanResult result = find_cheapest_plans(request);
    if (compares_context(result, request)) result.without_context = without_context(tables, known);
    return result;
  }
  Search search(tables);
  PlanResult result = search.find(request.top);
  if (!compares_context(result, request)) return result;
  if (result.is_complete) {
    PlanResult alone = search.find_without_context(result.plans);
    if (!alone.plans.empty()) result.without_context = std::move(alone.plans.front());
    if (alone.is_complete) return result;
  }
  result.without_context = without_context(tables, known);
  return result;
}

}  // namespace

PlanResult find_fitting_plans(const PlanRequest& request, KnownParts* known) {
  PlanTables tables(request, known);
  PlanResult result = Search(tables).find(request.top);
  result.num_configurations = tables.space.num_configurations();
  return result;
}

PlanResult find_plans(const PlanRequest& request) {
  KnownParts known;
  PlanTables tables(request, &known);
  PlanResult result = find_all(tables, known);
  if (request.objective != PlanObjective::cost) result.num_configurations = tables.space.num_configurations();
  if (request.objective != PlanObjective::memory)
    for (Plan& plan : result.plans)
      if (std::optional<Plan> plain = in_one_stage(plan, tables.space, request)) plan = *std::move(plain);
  if (!result.plans.empty()) {
    result.in_default_order = in_default_order(result.plans.front(), request);
    // A search that has ended may not have seen it.
    const bool is_better = result.in_default_order && result.in_default_order->outcome.fits() &&
                           result.in_default_order->outcome.step_seconds < result.plans.front().outcome.step_seconds;
    if (is_better && request.objective == PlanObjective::time) {
      result.plans.front() = std::move(*result.in_default_order);
      result.in_default_order.reset();
    }
    result.in_other_formats = in_other_formats(result.plans.front(), request);
    return result;
  }
  const double since = request.clock();
  NearestPlan nearest = find_nearest_plan(tables);
  result.nearest = std::move(nearest.plan);
  result.is_nearest_proven = nearest.is_proven;
  result.num_evaluated += nearest.num_evaluated;
  result.seconds += request.clock() - since;
  result.suggestions = suggestions_for(request, known);
  return result;
}

}  // namespace echelon
