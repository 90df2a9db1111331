#include "schedule/lowering/gradient_plan.h"

#include <map>
#include <tuple>

namespace echelon {
namespace {

// Passes that compute one gradient: all of the step, or the units of one pass through a stage.
using Together = std::tuple<UnitKey, int, int>;  // (unit, stage, microbatch)

struct PassGroup {
  int first = 0;
  std::map<int, int> last_of_stage;
};

int last_position(const PassGroup& group) {
  int last = 0;
  for (const auto& [stage, position] : group.last_of_stage) last = std::max(last, position);
  return last;
}

}  // namespace

GradientPlan gradient_plan(const UnitPasses& passes, const LoweringOptions& options) {
  std::map<Together, PassGroup> groups;
  std::map<UnitKey, int> last;
  for (int position = 0; position < static_cast<int>(passes.size()); ++position) {
    const Action& pass = passes[static_cast<std::size_t>(position)];
    if (!computes_weight_gradients(pass.kind)) continue;
    for (const UnitKey& key : units_of(pass, options)) {
      const Together together =
          options.shards_gradients ? Together{key, pass.stage, pass.microbatch} : Together{key, -1, -1};
      groups.try_emplace(together, PassGroup{.first = position, .last_of_stage = {}})
          .first->second.last_of_stage[pass.stage] = position;
      last[key] = position;
    }
  }
  GradientPlan plan;
  plan.opened_before.resize(passes.size());
  plan.complete_after.resize(passes.size());
  for (const auto& [together, group] : groups) {
    const UnitKey key = std::get<0>(together);
    const int end = last_position(group);
    CompleteGradient gradient{.key = key, .writers = {}, .is_last = end == last[key]};
    for (const auto& [stage, position] : group.last_of_stage) gradient.writers.push_back(position);
    if (options.shards_gradients) plan.opened_before[static_cast<std::size_t>(group.first)].push_back(key);
    plan.complete_after[static_cast<std::size_t>(end)].push_back(std::move(gradient));
  }
  return plan;
}

}  // namespace echelon
