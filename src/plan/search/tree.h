// The tree of sets of layouts that a search takes apart: what a set's children are, and what it costs to find out.
#pragma once

#include "plan/bounds/bounds.h"
#include "plan/bounds/layout_steps.h"
#include "plan/search/plan.h"
#include "plan/sets/pipeline_parts.h"
#include "predict/machine/device_memory.h"

#include <array>
#include <unordered_map>
#include <unordered_set>

namespace echelon {

/// Tensor, pipeline, data and context degree, and the two of experts.
using PlanDegrees = std::array<std::int64_t, 6>;
[[nodiscard]] inline PlanDegrees degrees_of(const PlanShape& shape) {
  return {shape.tp, shape.pp, shape.dp, shape.cp, shape.ep, shape.etp};
}
[[nodiscard]] inline PlanDegrees degrees_of(const PlanNode& node) { return degrees_of(node.choice.shape); }
[[nodiscard]] inline PlanDegrees degrees_of(const PlanHeap::Entry& entry) { return degrees_of(entry.shape()); }

/// Work that a set of layouts counts.
inline constexpr std::int64_t work_of_set = 10;
/// What a search has done so far. Work is about proportional to time on any machine.
struct PlanCounts {
  std::int64_t num_evaluated = 0, num_played = 0, num_stepped = 0, work = 0;
};

/// What searches for one request know of its layouts. It refers to the request.
struct PlanTables {
  PlanTables(const PlanRequest& asked, KnownParts* known)
      : request(asked),
        since(asked.clock()),
        space(asked),
        bounds(space, asked, known),
        steps(space, asked, bounds.costs()) {}
  PlanTables(const PlanTables&) = delete;
  PlanTables& operator=(const PlanTables&) = delete;

  const PlanRequest& request;
  double since;  // when the next search, with its part of these tables, started
  PlanSpace space;
  PlanBounds bounds;
  LayoutSteps steps;
};

class PlanTree {
 public:
  /// `must_fit`: layouts that do not fit are left out. It refers to the tables.
  PlanTree(PlanTables& tables, bool must_fit);
  PlanTree(const PlanTree&) = delete;
  PlanTree& operator=(const PlanTree&) = delete;

  [[nodiscard]] const PlanSpace& space() const { return space_; }
  [[nodiscard]] const PlanCounts& counts() const { return counts_; }
  /// Whether the bound of bytes comes first in the key of a set.
  [[nodiscard]] bool memory_first() const { return request_.objective == PlanObjective::memory || !must_fit_; }

  /// The sets of all shapes.
  [[nodiscard]] PlanHeap roots();
  /// Takes a set apart, or bounds a layout better: what comes of it goes to `open`, or to timed() at the last grade.
  void expand(const PlanNode& node, PlanHeap& open);
  /// The same of the first set, which is bounded. Pipelines of a shape stay together: they come out one by one, in the
  /// same order.
  void expand_first(PlanHeap& open);
  /// Bounds the first set better if that is a shape without its exchange, or of pipelines which were not looked at yet.
  /// Returns whether it was; no work.
  bool bound_first(PlanHeap& open);
  /// Bounds all shapes by their exchange.
  void bound_shapes(PlanHeap& open);
  /// Pipelines that stayed together become nodes.
  void separate_parts(PlanHeap& open);
  void step(const PlanNode& layout, PlanHeap& open);
  void time(const PlanNode& layout);

  /// The layouts that were timed.
  [[nodiscard]] PlanHeap& timed() { return timed_; }
  [[nodiscard]] std::int64_t num_timed() const { return static_cast<std::int64_t>(plans_.size()); }
  /// Of a timed layout, once.
  [[nodiscard]] Plan take_plan(const PlanNode& timed) {
    return std::move(plans_[static_cast<std::size_t>(timed.plan)]);
  }

  /// Layouts of a shape as experts choose them, in the default order, with the bounds of no order.
  void add_expert_choices(const PlanShape& shape, PlanHeap& seeds);
  /// One layout, with its schedule simulated, which takes `least_seconds` at least.
  void add_layout(const PlanChoice& choice, PlanHeap& open, double least_seconds = 0);
  /// The layout in its other orders of axes that the machine can tell apart.
  void add_orders(const PlanChoice& choice, PlanHeap& open);

 private:
  void bound_shape(PlanNode node, PlanHeap& open);
  void expand_shape(const PlanShape& shape, PlanHeap& open);
  void expand_to_parts(const PlanNode& shape, PlanHeap& open);
  static void push_parts(PlanNode node, PlanHeap& open);
  void expand_parts(const PlanNode& node, PlanHeap& open);
  void fit_pipeline(const PlanNode& node, PlanHeap& open);
  void clock_pipeline(const PlanNode& node, PlanHeap& open);
  void expand_pipeline(const PlanNode& node, PlanHeap& open);
  void expand_data(const PlanNode& node, PlanChoice choice, PlanHeap& open);
  [[nodiscard]] double played_seconds(const PlanNode& node);
  [[nodiscard]] std::vector<double> played_in_orders(const PlanNode& node);
  void clock_any_order(const PlanNode& node, PlanHeap& open);
  void expand_orders(const PlanNode& node, PlanHeap& open);
  void push_pipeline(PlanNode node, PlanHeap& open);

  struct Bound {
    double seconds = 0;
    std::int64_t bytes = 0;
  };
  [[nodiscard]] PlanKey key(const Bound& bound) const;
  [[nodiscard]] PlanNode layout_node(PlanGrade grade, const PlanChoice& choice, const Bound& bound) const;
  [[nodiscard]] std::int64_t most_arena_bytes(const Communicators& communicators) const;
  [[nodiscard]] bool may_fit(std::int64_t bytes) const { return !must_fit_ || bytes <= device_bytes_; }
  [[nodiscard]] bool may_fit(std::int64_t bytes, std::int64_t most_bytes) const {
    return !must_fit_ || bytes <= most_bytes;
  }
  [[nodiscard]] bool may_fit(const PlanChoice& choice, std::int64_t bytes) const;
  [[nodiscard]] std::int64_t most_arena_bytes(const PlanShape& shape, const PlanData& data) const;

  /// Data axes of a shape that have an order with a placement, and what every layout with them shares. The seconds are
  /// counted once they are asked for.
  struct PlacedData {
    PlanData data;
    std::ptrdiff_t place = 0;  // among those of the shape
    const UnitStates* traces = nullptr;
    const StateCosts* state = nullptr;
    std::int64_t most_bytes = 0;  // of an arena
    /// Programs without recomputation: in the order that is best for them, and in each.
    struct Played {
      bool is_known = false;
      double least = 0;
      std::vector<double> of_orders = {};
      std::int64_t work_without = 0;
    };
    std::unordered_map<const PlanPipeline*, Played> played = {};  // by pipeline of the space

    [[nodiscard]] double played_seconds(const PlanPipeline* pipeline) const {
      const auto known = played.find(pipeline);
      return known == played.end() ? 0 : known->second.least;
    }
  };
  [[nodiscard]] std::vector<PlacedData>& data_of(const PlanShape& shape, TensorPlacement placement);
  [[nodiscard]] const StateCosts& state_of(const PlanShape& shape, PlacedData& data, TensorPlacement placement);

  const PlanRequest& request_;
  bool must_fit_;
  const PlanSpace& space_;
  PlanBounds& bounds_;
  LayoutSteps& steps_;
  std::int64_t device_bytes_;
  PipelineKeys keys_;
  std::map<std::pair<PlanShape, TensorPlacement>, std::vector<PlacedData>> data_;
  std::unordered_set<const PlanPipeline*> played_;  // with any data axes
  std::int64_t play_budget_;                        // of work; what it saves adds to it
  PlanHeap timed_;
  std::vector<PlanHeap> together_;  // shapes whose pipelines were separated, which refer to them
  std::vector<Plan> plans_;
  PlanCounts counts_;
};

}  // namespace echelon
