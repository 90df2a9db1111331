#include "schedule/lowering/gather_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace echelon {
namespace {

/// From the first to the last position where a unit is used.
struct Span {
  int first = std::numeric_limits<int>::max(), last = -1;
  void add(int position) {
    first = std::min(first, position);
    last = std::max(last, position);
  }
  [[nodiscard]] bool goes_on_after(int position) const { return first <= position && position < last; }
};

class Uses {
 public:
  Uses(const UnitPasses& passes, const LoweringOptions& options)
      : keeps_(options.keeps_gathered), depth_(options.prefetch_depth) {
    for (const Action& pass : passes) {
      const int position = static_cast<int>(units_.size());
      units_.push_back(units_of(pass, options));
      for (const UnitKey& key : units_.back()) {
        if (keeps_ == KeepsGathered::for_backward) of_microbatch_[key][pass.microbatch].add(position);
        of_step_[key].add(position);
      }
    }
  }

  [[nodiscard]] const std::vector<UnitKey>& at(int position) const {
    static const std::vector<UnitKey> none;
    return position < static_cast<int>(units_.size()) ? units_[static_cast<std::size_t>(position)] : none;
  }

  [[nodiscard]] bool keeps(const UnitKey& key, int position) const {
    for (int next = position + 1; next <= position + depth_; ++next)
      if (std::find(at(next).begin(), at(next).end(), key) != at(next).end()) return true;
    switch (keeps_) {
      case KeepsGathered::for_next_pass: return false;
      case KeepsGathered::for_backward: {
        const auto& spans = of_microbatch_.at(key);
        return std::any_of(spans.begin(), spans.end(),
                           [&](const auto& span) { return span.second.goes_on_after(position); });
      }
      case KeepsGathered::for_step: return of_step_.at(key).goes_on_after(position);
    }
    return false;
  }

 private:
  KeepsGathered keeps_;
  int depth_;
  std::vector<std::vector<UnitKey>> units_;  // by position
  std::map<UnitKey, std::map<int, Span>> of_microbatch_;
  std::map<UnitKey, Span> of_step_;
};

}  // namespace

GatherPlan gather_plan(const UnitPasses& passes, const LoweringOptions& options) {
  const Uses uses(passes, options);
  GatherPlan plan;
  std::set<UnitKey> gathered;
  for (int position = 0; position < static_cast<int>(passes.size()); ++position) {
    auto& before = plan.before.emplace_back();
    for (int needed = position; needed <= position + options.prefetch_depth; ++needed)
      for (const UnitKey& key : uses.at(needed))
        if (gathered.insert(key).second) before.push_back(key);
    auto& after = plan.after.emplace_back();
    for (const UnitKey& key : uses.at(position))
      if (!uses.keeps(key, position)) after.push_back(key);
    for (const UnitKey& key : after) gathered.erase(key);
  }
  return plan;
}

}  // namespace echelon
