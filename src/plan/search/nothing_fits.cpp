#include "plan/search/nothing_fits.h"

#include "base/error.h"
#include "base/units.h"
#include "plan/search/search.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_work_of_proof = 4'000'000;
constexpr int most_dives = 8;

bool is_behind(PlanTree& tree, const PlanHeap& open) {
  return !open.empty() && (tree.timed().empty() || open.top().key < tree.timed().top().key);
}

/// Whether nothing that is left needs less than the best of those that were timed.
bool prove(PlanTree& tree, PlanHeap& open) {
  while (is_behind(tree, open) && tree.counts().work < most_work_of_proof)
    if (!tree.bound_first(open)) tree.expand_first(open);
  return !is_behind(tree, open);
}

/// From each of the lowest sets down to a layout: of what a set is taken apart into, the lowest of the smallest sets.
void dive(PlanTree& tree, PlanHeap& open) {
  for (int i = 0; i < most_dives || tree.timed().empty(); ++i) {
    while (tree.bound_first(open)) {
    }
    if (open.empty()) return;
    for (std::unique_ptr<PlanNode> lowest = open.pop(); lowest != nullptr;) {
      PlanHeap children;
      tree.expand(*lowest, children);
      const auto smallest = std::ranges::max_element(children.entries(), {}, &PlanHeap::Entry::grade);
      if (smallest == children.entries().end()) break;
      lowest = children.extract([grade = smallest->grade()](const auto& each) { return each.grade() == grade; }).pop();
    }
  }
}

constexpr std::int64_t most_times_more = 64;
// The question is whether something fits, and not which layout is the best.
constexpr double good_enough = 0.2;
constexpr std::int64_t most_work = 1'000'000;  // of a search
constexpr double most_seconds = 2;             // likewise

std::optional<Plan> best_of(PlanRequest request, KnownParts& known) {
  request.top = 1;
  request.within = good_enough;
  request.work = request.work > 0 ? std::min(request.work, most_work) : most_work;
  if (request.seconds > 0) request.seconds = std::min(request.seconds, most_seconds);
  try {
    PlanResult result = find_fitting_plans(request, &known);
    if (!result.plans.empty()) return std::move(result.plans.front());
  } catch (const Error&) {  // a number of devices that no layout divides
  }
  return std::nullopt;
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

std::vector<std::string> suggestions_for(const PlanRequest& request, KnownParts& known) {
  std::vector<std::string> suggestions;
  for (const std::string& key : request.fixed) {
    PlanRequest open = request;
    open.fixed.erase(key);
    if (const auto plan = best_of(open, known))
      suggestions.push_back(fmt::format("without --{}: {:.4f} s/step in {:.2f} GiB", key, plan->outcome.step_seconds,
                                        static_cast<double>(plan->outcome.peak_memory_bytes()) / gib));
  }
  if (!suggestions.empty()) return suggestions;
  if (request.machine.host)
    return {fmt::format("a smaller model, or shorter sequences than {}: ranks of a host share its memory",
                        request.base.training.seq_len)};
  PlanRequest open = request;
  open.fixed.clear();
  const auto available = request.machine.num_devices();
  for (std::int64_t times = 2; times <= most_times_more; times *= 2) {
    open.num_devices = request.num_devices * times;
    if (available && open.num_devices > *available) break;
    const auto plan = best_of(open, known);
    if (!plan) continue;
    const PlanShape& shape = plan->choice.shape;
    suggestions.push_back(
        fmt::format("--gpus={}: {:.4f} s/step in {:.2f} GiB ({})", open.num_devices, plan->outcome.step_seconds,
                    static_cast<double>(plan->outcome.peak_memory_bytes()) / gib, degrees_text(shape)));
    return suggestions;
  }
  suggestions.push_back(
      available && request.num_devices * 2 > *available
          ? fmt::format("the machine '{}' has no more than {} devices: a smaller model, or shorter sequences than {}",
                        request.machine.name, *available, request.base.training.seq_len)
          : fmt::format("no number of devices up to {} helps: shorter sequences than {}",
                        request.num_devices * most_times_more, request.base.training.seq_len));
  return suggestions;
}

}  // namespace echelon
