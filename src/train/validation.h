// The mean loss over validation data: every window counts once, whatever the batch size and the layout.
#pragma once

#include "data/dataset_batches.h"
#include "engine/step.h"

namespace echelon {

struct MeanLoss {
  double loss = 0;  // in nats per valid target; 0 if there is none
  std::int64_t num_targets = 0;
};

/// Over the first `most_batches` global batches of `data`, or all of it where that is less; what a last batch lacks is
/// masked. Every rank of the mesh calls it.
[[nodiscard]] MeanLoss validation_loss(Step& step, const DatasetBatches& data, const RunConfig& config,
                                       std::int64_t most_batches);

}  // namespace echelon
