// What types take for granted when a step begins: which parameter lies where and how the ranks hold it, and what the host writes.
#pragma once

#include "engine/rank_run.h"
#include "types/rank_axes.h"
#include "types/typed_memory.h"

namespace echelon {

/// Of the activations between pipeline stages, and of their gradients.
[[nodiscard]] LayoutType border_type(const RunConfig& config, const RankAxes& axes);

/// The batch, the count of its targets, and the loss.
void name_scalars(RankRun& run, const RunConfig& config, const RankAxes& axes, TypedMemory& memory);

/// Parameters, gradients and optimizer states of a rank.
class NamedParams {
 public:
  /// Names them and gives them their types, as a step finds them. `memory` and `axes` must outlive it.
  NamedParams(RankRun& run, const RankAxes& axes, TypedMemory& memory);

  /// After a step: each gradient that this rank has to count is in the norm. Throws Failure naming the parameter.
  void require_counted() const;
  /// The parameters are what the next step will take them for. Throws Failure naming the first that is not.
  void require_as_before() const;

 private:
  struct Entry {
    const Param* param = nullptr;
    LayoutType type;
    Tensor owned_gradient;  // empty where this rank owns nothing of it
  };
  void add(ShardedUnit& unit, bool is_shared_by_stages);
  void add(const ShardedUnit& unit, std::size_t bucket, const Segment& segment, const LayoutType& type, int gathered);
  [[nodiscard]] LayoutType type_of(const Param& param, bool is_shared_by_stages) const;

  const RankAxes& axes_;
  TypedMemory& memory_;
  std::vector<Entry> entries_;
};

}  // namespace echelon
