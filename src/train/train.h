// A whole training run, or in an MPI job the part of it that one process has: data, model, steps, evaluation, log and
// saving.
#pragma once

#include "comm/launch/run_ranks.h"
#include "engine/run_observer.h"
#include "spec/config/run_config.h"

#include <atomic>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

namespace echelon {

struct TrainOptions {
  RunObserver* observer = nullptr;  // of several processes, the first one has it
  // e.g. set by Ctrl-C: the run ends after the step at hand, on all ranks.
  const std::atomic<bool>* stop_requested = nullptr;
};

struct TrainResult {
  StepReport last_step;
  std::optional<double> validation_loss;
  // What a model would lose that knows nothing but the frequency of tokens.
  std::optional<double> validation_unigram_entropy;
  std::filesystem::path model_folder;  // the last one that was saved; empty: none
  bool was_stopped = false;
  std::string device_choices = {};  // RankDevice::choices of rank 0
};

/// Throws Error for bad input before anything is computed (a training token outside of the vocabulary: when it is
/// read), and Failure ("rank 3: backward stage 1
/// ...") if a rank fails; in an MPI job the failure is told and all processes end. There, every process gets a result,
/// but rank 0's alone is whole.
[[nodiscard]] TrainResult train(const RunConfig& config, const TrainOptions& options);

/// Where the ranks of a config's run live. Throws Error if the launcher started another number of processes.
[[nodiscard]] RankPlacement placement_of(const RunConfig& config);

struct EvaluationResult {
  double loss = 0;
  std::int64_t num_targets = 0;
  std::int64_t num_targets_of_text = 0;  // of which `most_batches` may leave some out
  double unigram_entropy = 0;            // of the whole text
  std::string note = {};                 // ModelReader::unused_tensors_note()
};

/// Mean loss in nats of the first `most_batches` global batches of `config.data.validation_path` under the weights of
/// `config.checkpoint.initial_load_path`. Throws Failure if it is not finite.
[[nodiscard]] EvaluationResult evaluate(const RunConfig& config,
                                        std::int64_t most_batches = std::numeric_limits<std::int64_t>::max());

}  // namespace echelon
