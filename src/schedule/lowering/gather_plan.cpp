#include "schedule/lowering/gather_plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
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
};

/// What has started by a position, and not ended.
class Spans {
 public:
  explicit Spans(const std::map<int, Span>& of_microbatches) {
    for (const auto& [microbatch, span] : of_microbatches) spans_.push_back(span);
    std::ranges::sort(spans_, std::ranges::less(), &Span::first);
    for (std::size_t i = 1; i < spans_.size(); ++i) spans_[i].last = std::max(spans_[i].last, spans_[i - 1].last);
  }
  [[nodiscard]] bool go_on_after(int position) const {
    const auto later = std::ranges::upper_bound(spans_, position, std::ranges::less(), &Span::first);
    return later != spans_.begin() && position < std::prev(later)->last;
  }

 private:
  std::vector<Span> spans_;  // by their first positions; the last one is that of any so far
};

class Uses {
 public:
  Uses(const UnitPasses& passes, const LoweringOptions& options)
      : keeps_(options.keeps_gathered), depth_(options.prefetch_depth) {
    std::map<UnitKey, std::map<int, Span>> kept;
    for (const Action& pass : passes) {
      const int position = static_cast<int>(units_.size());
      units_.push_back(units_of(pass, options));
      for (const UnitKey& key : units_.back()) {
        switch (keeps_) {
          case KeepsGathered::for_next_pass: break;
          case KeepsGathered::for_backward: kept[key][pass.microbatch].add(position); break;
          case KeepsGathered::for_step: kept[key][0].add(position); break;
        }
      }
    }
    for (const auto& [key, of_microbatches] : kept) spans_.emplace(key, of_microbatches);
  }

  [[nodiscard]] const std::vector<UnitKey>& at(int position) const {
    static const std::vector<UnitKey> none;
    return position < static_cast<int>(units_.size()) ? units_[static_cast<std::size_t>(position)] : none;
  }

  [[nodiscard]] bool keeps(const UnitKey& key, int position) const {
    for (int next = position + 1; next <= position + depth_; ++next)
      if (std::find(at(next).begin(), at(next).end(), key) != at(next).end()) return true;
    const auto found = spans_.find(key);
    return found != spans_.end() && found->second.go_on_after(position);
  }

 private:
  KeepsGathered keeps_;
  int depth_;
  std::vector<std::vector<UnitKey>> units_;  // by position
  std::map<UnitKey, Spans> spans_;
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
