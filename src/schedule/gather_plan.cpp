#include "schedule/gather_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace echelon {
namespace {

/// From the first to the last position where a part is used.
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
  Uses(const UnitPasses& passes, const LoweringOptions& options) : keeps_(options.keeps_gathered) {
    for (const Action& pass : passes) {
      const int position = static_cast<int>(parts_.size());
      parts_.push_back(parts_of(pass, options));
      for (const Part& part : parts_.back()) {
        of_microbatch_[part][pass.microbatch].add(position);
        of_step_[part].add(position);
      }
    }
  }

  [[nodiscard]] const std::vector<Part>& at(int position) const {
    static const std::vector<Part> none;
    return position < static_cast<int>(parts_.size()) ? parts_[static_cast<std::size_t>(position)] : none;
  }

  [[nodiscard]] bool keeps(const Part& part, int position) const {
    const std::vector<Part>& next = at(position + 1);
    if (std::find(next.begin(), next.end(), part) != next.end()) return true;
    switch (keeps_) {
      case KeepsGathered::for_next_pass: return false;
      case KeepsGathered::for_backward: {
        const auto& spans = of_microbatch_.at(part);
        return std::any_of(spans.begin(), spans.end(),
                           [&](const auto& span) { return span.second.goes_on_after(position); });
      }
      case KeepsGathered::for_step: return of_step_.at(part).goes_on_after(position);
    }
    return false;
  }

 private:
  KeepsGathered keeps_;
  std::vector<std::vector<Part>> parts_;  // by position
  std::map<Part, std::map<int, Span>> of_microbatch_;
  std::map<Part, Span> of_step_;
};

}  // namespace

GatherPlan gather_plan(const UnitPasses& passes, const LoweringOptions& options) {
  const Uses uses(passes, options);
  GatherPlan plan;
  std::set<Part> gathered;
  for (int position = 0; position < static_cast<int>(passes.size()); ++position) {
    auto& before = plan.before.emplace_back();
    for (const int needed : {position, position + 1})
      for (const Part& part : uses.at(needed))
        if (gathered.insert(part).second) before.push_back(part);
    auto& after = plan.after.emplace_back();
    for (const Part& part : uses.at(position))
      if (!uses.keeps(part, position)) after.push_back(part);
    for (const Part& part : after) gathered.erase(part);
  }
  return plan;
}

}  // namespace echelon
