// The mean loss over validation data: every window counts once, whatever the batch size and the layout.
#pragma once

#include "data/dataset_batches.h"
#include "engine/step.h"

#include <functional>

namespace echelon {

struct MeanLoss {
  double loss = 0;  // in nats per valid target; 0 if there is none
  std::int64_t num_targets = 0;
  RunRequest request = RunRequest::none;  // one that ends the run; then the loss is of a part of the data
};

/// Evaluates the first `most_batches` global batches of `data`, or all of it if it has fewer. Masks the missing part of
/// a last batch. Collective over the mesh. `request` gives what was asked of this rank so far; none where it is empty.
[[nodiscard]] MeanLoss validation_loss(Step& step, const DatasetBatches& data, const RunConfig& config,
                                       std::int64_t most_batches, const std::function<RunRequest()>& request = {});

}  // namespace echelon
