// The pipelines of a shape, each with one chain of recomputation choices and one placement of groups, from the lowest
// bound on. A shape has thousands and a search looks at few. So a bound of all that recompute the same operations comes
// first, then one of each without recomputation, and its own bound last.
#pragma once

#include "plan/sets/pipeline_keys.h"

#include <optional>
#include <vector>

namespace echelon {

/// It refers to the keys.
class PipelineParts {
 public:
  /// Turns of the parts follow `turn`: in the order of pipelines, chains and placements.
  PipelineParts(PipelineKeys& keys, const PlanShape& shape, std::int64_t turn);
  [[nodiscard]] static std::int64_t num_turns(PipelineKeys& keys, const PlanShape& shape);

  [[nodiscard]] bool empty() const { return heap_.empty() && groups_.empty(); }
  /// Whether the first part and its bound are known.
  [[nodiscard]] bool is_first_known() const { return is_first_known_; }
  /// Of the first part, or a bound of it.
  [[nodiscard]] PlanKey key() const;
  [[nodiscard]] std::int64_t turn() const { return is_first_known_ ? heap_.front().turn : turn_; }
  /// As long as its bound is not above `most`.
  void find_first(double most);
  /// The first part, which is known.
  [[nodiscard]] PipelinePart take_first();
  /// What is left, with bounds.
  [[nodiscard]] const std::vector<PipelinePart>& find_all();

 private:
  /// All that recompute the same operations with the same placement.
  struct Group {
    double least = 0;              // bound of any of them
    std::size_t operations = 0;    // among those of the kinds
    std::size_t placement = 0;     // among those of the shape
    bool knows_operations = true;  // else `least` is that of no recomputation
  };
  void bound(Group& group) const;
  void add_parts(const Group& group);
  /// Returns whether any layout of the part may fit.
  [[nodiscard]] bool bound(PipelinePart& part);
  [[nodiscard]] std::vector<Group>::iterator first_group();
  [[nodiscard]] std::size_t same_costs(std::size_t operations, std::size_t place);
  /// Of a kind of pipelines: without recomputation; of its chain without those that do not fit.
  [[nodiscard]] double plain_seconds(const PipelinePart& part);
  [[nodiscard]] RecomputeChain fitting(const PipelinePart& part);

  PipelineKeys* keys_;
  PlanShape shape_;
  std::int64_t turn_;
  const std::vector<PlanPipeline>* pipelines_;
  const PipelineKeys::Kinds* kinds_;
  std::vector<TensorPlacement> placements_;
  std::vector<Group> groups_;
  std::vector<PipelinePart> heap_;  // by comes_later
  bool is_first_known_ = false;
  // By kind: of operations, of placements, of both.
  std::vector<std::vector<std::optional<RecomputeChain>>> fitting_;
  std::vector<std::vector<double>> plain_seconds_;
  std::vector<std::vector<std::size_t>> same_costs_;  // of operations: by placement
  std::vector<std::vector<std::optional<PlanKey>>> known_;
  std::vector<std::optional<bool>> fits_plain_;
};

}  // namespace echelon
