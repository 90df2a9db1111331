#include "train/evaluate.h"

#include "base/error.h"
#include "blueprint/blueprint.h"
#include "engine/device/rank_cores.h"
#include "engine/run_device.h"
#include "engine/types/layout_types.h"
#include "report/system_memory.h"
#include "spec/groups.h"
#include "train/data/data_fingerprint.h"
#include "train/data/open_data.h"
#include "train/run_placement.h"
#include "train/start/initial_weights.h"
#include "train/start/run_start.h"
#include "train/validation.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

// A batch beyond the data would be mostly padding.
RunConfig with_batch_within(RunConfig config, std::int64_t num_sequences) {
  const std::int64_t round = config.data_parallel_degree() * config.training.micro_batch_size;
  const std::int64_t enough = (num_sequences + round - 1) / round * round;
  config.training.global_batch_size = std::min(config.training.global_batch_size, enough);
  return config;
}

}  // namespace

EvaluationResult evaluate(const RunConfig& asked, std::int64_t most_batches) {
  RunConfig wanted = asked;
  wanted.lora = {};  // adapters are merged with their base when they are read
  require(!wanted.checkpoint.initial_load_path.empty(),
          "checkpoint.initial_load_path is empty: which model is to be evaluated? Add --model=FOLDER");
  require(!wanted.data.validation_path.empty(),
          "data.validation_path is empty: on which tokens is the model to be evaluated?");
  const RankPlacement placement = placement_of(wanted);
  const auto initial = initial_weights(wanted);
  RunObserver no_observer;
  const OpenedData opened = open_validation(wanted, placement, no_observer);
  const DatasetBatches& validation = opened.batches;
  const std::unique_ptr<Backend> backend = open_backend(wanted.training.device);
  const RunConfig config = with_device(
      with_nodes(with_batch_within(wanted, validation.windows_per_epoch(wanted.training.seq_len))), backend->kind());
  const Blueprint blueprint(config);
  require_host_memory(blueprint, placement, *backend);
  rehearse(blueprint);
  store_packing(opened, config, no_observer);
  EvaluationResult result;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& host) {
    if (placement.transport != Transport::thread)
      require_same_run(config, {"data.validation_path", config.data.validation_path, fingerprint_of(validation)},
                       host.comm(step_group));
    const std::unique_ptr<RankDevice> device =
        open_device(*backend, blueprint, host, claim_cores(config, host).num_threads,
                    {.is_of_processes = placement.transport == Transport::mpi});
    RankRun run(blueprint, device->mesh(), device->ops(), device->memory());
    run.model().load(*initial, device->ops());
    const MeanLoss mean = validation_loss(run.step(), validation, config, most_batches);
    if (host.rank() == placement.first_rank_here)
      result = {.loss = mean.loss,
                .num_targets = mean.num_targets,
                .num_targets_of_text = validation.num_targets(),
                .unigram_entropy = unigram_entropy(validation.dataset()),
                .note = initial->note(),
                .device = device->description()};
  });
  require(result.num_targets > 0,
          "training.eval_batches = {} of data.validation_path = '{}' have no token to predict (use more)", most_batches,
          config.data.validation_path);
  if (!std::isfinite(result.loss))
    throw Failure(fmt::format("the loss of '{}' on '{}' is {}: its weights overflow in training.dtype",
                              config.checkpoint.initial_load_path, config.data.validation_path, result.loss));
  return result;
}

}  // namespace echelon
