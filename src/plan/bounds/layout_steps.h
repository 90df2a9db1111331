// The step of a layout on its own lowered programs, from costs of the model's parts: what `simulate` gives for its
// blueprint, but for rounding, without tracing every rank and without placing its buffers. A search can afford it for
// thousands of layouts.
#pragma once

#include "plan/bounds/layout_program.h"
#include "plan/bounds/layout_times.h"
#include "plan/bounds/stages.h"
#include "plan/bounds/unit_costs.h"

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace echelon {

/// A layout's step, and the highest sum of bytes that live at the same time on one rank.
struct LayoutStep {
  double seconds = 0;
  // Otherwise a lower bound: replicas may be placed differently on nodes, and each stage counts with the closest
  // placement.
  bool is_exact = true;
  std::int64_t live_bytes = 0;
  std::int64_t num_actions = 0, num_lowered = 0;  // of its programs; of those that were lowered for it
};

/// Not thread-safe.
class LayoutSteps {
 public:
  LayoutSteps(const PlanSpace& space, const PlanRequest& request, CostTable& costs)
      : space_(&space), request_(&request), costs_(&costs) {}

  /// None on nodes of several kinds, and on a host whose cores ranks share.
  [[nodiscard]] std::optional<LayoutStep> play(const PlanChoice& choice);

 private:
  using ProgramKey = std::vector<std::int64_t>;
  struct Known {
    ProgramKey key;
    std::unique_ptr<LayoutProgram> program;
  };
  [[nodiscard]] LayoutProgram& program_of(const PlanChoice& choice, const RunConfig& config);
  [[nodiscard]] LayoutTimes& times_of(const PlanChoice& choice, const RunConfig& config);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTable* costs_;
  std::list<Known> known_;  // those that were used last come first
  std::map<ProgramKey, std::list<Known>::iterator> known_by_key_;
  std::int64_t num_known_actions_ = 0, num_lowered_ = 0;
  std::map<std::tuple<PlanShape, PlanData, AxisOrder, Placement>, std::unique_ptr<LayoutTimes>> times_;
};

}  // namespace echelon
