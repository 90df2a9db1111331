// The loss of a model that is already trained, on all ranks of a layout.
#pragma once

#include "spec/config/run_config.h"

#include <cstdint>
#include <limits>
#include <string>

namespace echelon {

struct EvaluationResult {
  double loss = 0;
  std::int64_t num_targets = 0;
  std::int64_t num_targets_of_text = 0;  // of which `most_batches` may skip some
  double unigram_entropy = 0;            // of the whole text
  std::string note = {};                 // ModelReader::note()
  std::string device = {};               // RankDevice::description()
};

/// Mean loss in nats of the first `most_batches` global batches of `config.data.validation_path` under the weights of
/// `config.checkpoint.initial_load_path`. Throws Failure if it is not finite.
[[nodiscard]] EvaluationResult evaluate(const RunConfig& config,
                                        std::int64_t most_batches = std::numeric_limits<std::int64_t>::max());

}  // namespace echelon
