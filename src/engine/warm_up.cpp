#include "engine/warm_up.h"

#include "comm/trace/trace_mesh.h"
#include "data/masked_batches.h"
#include "engine/layout_run.h"

namespace echelon {

void warm_up(const Blueprint& blueprint, RankDevice& device) {
  const RunConfig& config = blueprint.config();
  const FormulaTokens batches(config.data.seed, config.model.vocab_size);
  TraceMesh alone(blueprint.mesh(), device.mesh().rank());
  RankRun run(blueprint, alone, device.ops(), device.memory());
  run.model().refresh_masters(device.ops());  // weights are zeros
  (void)run.step().run(ProgramKind::training, training_input(config, batches, 1, LossScaler(config)));
  (void)run.step().run(ProgramKind::evaluation, {.batches = &batches, .adamw = {}});
  device.ops().finish();
}

}  // namespace echelon
