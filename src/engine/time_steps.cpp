#include "engine/time_steps.h"

#include "base/error.h"
#include "blueprint/blueprint.h"
#include "comm/run_ranks.h"
#include "data/masked_batches.h"
#include "engine/layout_run.h"
#include "engine/machine_memory.h"
#include "engine/rank_cores.h"
#include "engine/train.h"
#include "ops/cpu/cpu_ops.h"
#include "report/system_memory.h"

#include <chrono>

namespace echelon {

std::vector<double> time_steps(const RunConfig& config, std::int64_t num_steps) {
  using Clock = std::chrono::steady_clock;
  const RankPlacement placement = placement_of(config);
  const Blueprint blueprint(config);
  require_memory(blueprint, placement.num_ranks_on_host, system_memory_bytes());
  const FormulaTokens batches(config.data.seed, config.model.vocab_size);
  std::vector<double> seconds;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({.num_threads = claim_cores(config, mesh).num_threads});
    RankRun run(blueprint, mesh, *ops);
    run.model().initialize(config.training.seed, *ops);
    for (std::int64_t step = 1; step <= num_steps + 1; ++step) {
      const auto begin = Clock::now();
      run.step().run(ProgramKind::training, training_input(config, batches, step));
      if (mesh.rank() == placement.first_rank_here && step > 1) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  });
  return seconds;
}

}  // namespace echelon
