// What the type check assumes at the start of a step: the address and layout of each parameter, and what the host
// writes.
#pragma once

#include "engine/rank_run.h"
#include "types/rank_axes.h"
#include "types/typed_memory.h"

#include <map>

namespace echelon {

/// Of the activations between pipeline stages, and of their gradients.
[[nodiscard]] LayoutType boundary_type(const RunConfig& config);

/// The batch, the count of its targets, and the loss.
void name_scalars(RankRun& run, const RunConfig& config, TypedMemory& memory);

/// Parameters, gradients and optimizer states of a rank. During a step, gathered parameters and gradients in separate
/// buffers are named too.
class NamedParams final : public StepObserver {
 public:
  /// Names them and gives them their types, as a step finds them. `memory` and `axes` must outlive it.
  NamedParams(RankRun& run, const RankAxes& axes, TypedMemory& memory);

  /// The program that is watched next.
  void watch(ProgramKind kind);
  void begins(const Action& action, ActionPart part) override;
  void ends() override;

  /// After a step: each gradient that this rank has to count is in the norm. Throws Failure naming the parameter.
  void require_counted() const;
  /// The parameters are what the next step will take them for. Throws Failure naming the first that is not.
  void require_as_before() const;

 private:
  struct Entry {
    const Param* param = nullptr;
    Tensor kept;            // the value between steps: all of it or the owned part
    LayoutType type;        // of `kept`
    Tensor owned_gradient;  // empty where this rank owns nothing of it
  };
  void add(ShardedUnit& unit);
  void add(const ShardedUnit& unit, std::size_t bucket, const Segment& segment);
  void open(const ShardedUnit& unit, const std::vector<Tensor>& buffers, std::string_view words, bool is_gradient);
  void close(const std::vector<Tensor>& buffers);
  [[nodiscard]] LayoutType type_of(const Param& param) const;

  RankRun& run_;
  const RankAxes& axes_;
  TypedMemory& memory_;
  ProgramKind kind_ = ProgramKind::training;
  std::vector<Entry> entries_;
  std::map<int, std::vector<const PlannedBuffer*>> opening_;             // that start their lifetime, by action
  std::map<const ShardedUnit*, std::vector<Tensor>> gathered_, opened_;  // the current whole buffers
  // The unit whose whole gradients are read for the last time by the current action.
  const ShardedUnit* last_read_ = nullptr;
};

}  // namespace echelon
