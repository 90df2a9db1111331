#include "engine/device/machine_memory.h"

#include "base/error.h"
#include "base/text/counted.h"

namespace echelon {

void require_memory(const Blueprint& blueprint, int num_ranks_on_host, std::int64_t machine_bytes) {
  if (machine_bytes == 0) return;
  // Ranks of one pipeline rank's stages are as large as the first of them, but for padding.
  constexpr double gibibyte = 1024.0 * 1024 * 1024;
  const double ranks_of_each =  // on identical hosts
      static_cast<double>(num_ranks_on_host) / blueprint.mesh().degree(Axis::pp);
  const RunConfig& config = blueprint.config();
  double num_bytes = 0;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks()) {
    num_bytes += ranks_of_each * static_cast<double>(rank.arena_bytes());
    require(num_bytes <= static_cast<double>(machine_bytes),
            "the run needs more than {:.1f} GiB for its {} here, but this machine has {:.1f} GiB: make "
            "model.hidden_size = {}, model.num_hidden_layers = {}, training.micro_batch_size = {} or "
            "training.seq_len = {} smaller",
            num_bytes / gibibyte, counted(num_ranks_on_host, "rank"), static_cast<double>(machine_bytes) / gibibyte,
            config.model.hidden_size, config.model.num_hidden_layers, config.training.micro_batch_size,
            config.training.seq_len);
  }
}

}  // namespace echelon
