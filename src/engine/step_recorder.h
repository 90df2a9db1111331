// Records what a rank's steps do and when, as chosen by metrics.trace. It wraps the backend and the transport of the
// step; a run that is not traced has none.
#pragma once

#include "comm/timed/timed_mesh.h"
#include "engine/step.h"
#include "ops/timed/timed_ops.h"
#include "report/step_trace.h"

#include <string>
#include <vector>

namespace echelon {

class StepRecorder final : public StepObserver {
 public:
  /// Both must outlive it.
  StepRecorder(Ops& ops, Mesh& mesh);

  /// What the step is to be made with.
  [[nodiscard]] Ops& ops() { return ops_; }
  [[nodiscard]] Mesh& mesh() { return mesh_; }

  /// What happens between the two is recorded as one step.
  void begin_step(std::int64_t step);
  void end_step(double attention_share);
  [[nodiscard]] const std::vector<StepTrace>& steps() const { return steps_; }
  void clear() { steps_.clear(); }

  void begins(const Action& action, ActionPart part) override;
  void ends() override;

 private:
  void add(Span span);

  TimedOps ops_;
  TimedMesh mesh_;
  std::vector<StepTrace> steps_;
  bool is_recording_ = false;
  Span open_;  // the current action or wait
};

}  // namespace echelon
