// Some steps of a config's layout with an observer: what `verify` and the parity tests are made of. Weights start
// from training.seed.
#pragma once

#include "backend/backend.h"
#include "engine/loss_scaler.h"
#include "engine/run_observer.h"

#include <functional>
#include <memory>

namespace echelon {

/// Wraps the backend and the transport that a rank's step uses. Tests inject theirs here; no config key does.
class RankInterposer {
 public:
  virtual ~RankInterposer() = default;
  [[nodiscard]] virtual Ops& ops() = 0;
  [[nodiscard]] virtual Mesh& mesh() = 0;
  /// The run that computes through it has been made.
  virtual void attach(RankRun& /*run*/) {}
  /// Observes the actions of the step; may be null.
  [[nodiscard]] virtual StepObserver* observer() { return nullptr; }
};

using RankRunner = std::function<void(const MeshShape& shape, const std::function<void(Mesh&)>& body)>;
using Interpose = std::function<std::unique_ptr<RankInterposer>(Ops& ops, Mesh& mesh)>;

struct LayoutRun {
  const Blueprint& blueprint;
  const BatchSource& batches;
  std::int64_t num_steps = 1;  // of the config's schedule of learning rates, from its first step on
  RankRunner run_ranks = {};   // empty: threads of this process
  Interpose interpose = {};    // empty: nothing
  Backend* backend = nullptr;  // null: that of training.device, where auto is the CPUs
};

/// Throws what a rank throws.
void run_layout(const LayoutRun& layout, RunObserver& observer);

/// The input of training step `step` (from 1) of a config that has not changed since the first; `scaler` has seen the
/// steps before it.
[[nodiscard]] StepInput training_input(const RunConfig& config, const BatchSource& batches, std::int64_t step,
                                       const LossScaler& scaler);

}  // namespace echelon
