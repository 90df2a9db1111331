// Bounds of the pipelines of a shape as keys of a search, and what pipelines have in common.
#pragma once

#include "plan/bounds/bounds.h"
#include "plan/sets/heap.h"

#include <map>
#include <span>
#include <vector>

namespace echelon {

/// Recomputations of the same operations, of more and more blocks: each is slower and keeps less.
using RecomputeChain = std::span<const PlanRecompute>;

/// A chain from its first one that fits. Most often all do.
template <class Fits>
[[nodiscard]] RecomputeChain from_first_fitting(RecomputeChain chain, const Fits& fits) {
  if (fits(chain.front())) return chain;
  const auto first = std::ranges::partition_point(chain, [&](const PlanRecompute& each) { return !fits(each); });
  return chain.subspan(static_cast<std::size_t>(first - chain.begin()));
}

/// Memoised; not thread-safe. It refers to both.
class PipelineKeys {
 public:
  /// `most_bytes`: of a rank that fits.
  PipelineKeys(const PlanSpace& space, PlanBounds& bounds, std::int64_t most_bytes, bool memory_first)
      : space_(&space), bounds_(&bounds), most_bytes_(most_bytes), memory_first_(memory_first) {}

  [[nodiscard]] const PlanSpace& space() const { return *space_; }
  [[nodiscard]] PlanBounds& bounds() const { return *bounds_; }
  [[nodiscard]] std::int64_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] bool memory_first() const { return memory_first_; }

  /// Of the layouts with the recomputations of a chain.
  [[nodiscard]] PlanKey of(const PlanShape& shape, const PlanPipeline& pipeline, RecomputeChain chain,
                           TensorPlacement placement) const;
  /// Whatever the schedule is.
  [[nodiscard]] bool may_fit(const PlanComputation& computation) const {
    return most_bytes_ == PlanBounds::any_bytes || bounds_->bytes().of_any_schedule(computation) <= most_bytes_;
  }
  [[nodiscard]] const std::vector<RecomputeChain>& chains(const PlanPipeline& pipeline);

  /// By the place of a pipeline among those of its shape: pipelines of the same kind have the same keys.
  struct Kinds {
    std::vector<std::size_t> of_pipelines = {};
    std::size_t count = 0;
    std::vector<BlockOperations> recomputed = {};  // by any of them
  };
  [[nodiscard]] const Kinds& kinds(const PlanShape& shape);

 private:
  const PlanSpace* space_;
  PlanBounds* bounds_;
  std::int64_t most_bytes_;
  bool memory_first_;
  // By what the space has of pipelines.
  std::map<const std::vector<PlanRecompute>*, std::vector<RecomputeChain>> chains_;
  std::map<const std::vector<PlanPipeline>*, Kinds> kinds_;
};

}  // namespace echelon
