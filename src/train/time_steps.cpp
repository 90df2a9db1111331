#include "train/time_steps.h"

#include "base/error.h"
#include "blueprint/blueprint.h"
#include "comm/launch/run_ranks.h"
#include "data/masked_batches.h"
#include "engine/device/rank_cores.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "train/run_placement.h"

#include <chrono>

namespace echelon {

std::vector<double> time_steps(const RunConfig& wanted, std::int64_t num_steps) {
  using Clock = std::chrono::steady_clock;
  const RankPlacement placement = placement_of(wanted);
  const std::unique_ptr<Backend> backend = open_backend(wanted.training.device);
  const RunConfig config = with_device(with_nodes(wanted), backend->kind());
  const std::int64_t num_before = config.training.cuda_graphs ? 2 : 1;  // the second one is recorded
  const Blueprint blueprint(config);
  require_host_memory(blueprint, placement, *backend);
  const FormulaTokens batches(config.data.seed, config.model.vocab_size);
  ProductRequest products = product_request(config);
  products.is_of_processes = placement.transport == Transport::mpi;
  std::vector<double> seconds;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& host) {
    const int num_threads = claim_cores(config, host).num_threads;
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, num_threads, products);
    RankRun run(blueprint, device->mesh(), device->ops(), device->memory(), recorder_of(*device, config));
    use_arena(*device, run.memory());
    run.model().initialize(config.training.seed, device->ops(), num_threads);
    LossScaler scaler(config);
    for (std::int64_t step = 1; step <= num_steps + num_before; ++step) {
      const auto begin = Clock::now();
      scaler.ended_step(run.step().run(ProgramKind::training, training_input(config, batches, step, scaler)));
      if (host.rank() == placement.first_rank_here && step > num_before)
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  });
  return seconds;
}

}  // namespace echelon
