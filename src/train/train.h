// A whole training run, or one process's part of it in an MPI job: data, model, steps, evaluation, log and saving.
#pragma once

#include "comm/launch/run_ranks.h"
#include "engine/run_observer.h"
#include "engine/run_requests.h"
#include "spec/config/run_config.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace echelon {

struct TrainResult {
  StepReport last_step;
  std::optional<double> validation_loss;
  // Loss of a model that predicts tokens by their frequency.
  std::optional<double> validation_unigram_entropy;
  std::filesystem::path checkpoint;        // the last one that this attempt wrote; empty: none
  std::filesystem::path model_folder;      // in Hugging Face's layout, after the last step; empty: none
  RunRequest ended_by = RunRequest::none;  // what ended the run early
  bool was_finished = false;               // by an earlier attempt: nothing was trained
  std::string device_choices = {};         // RankDevice::choices of rank 0
};

struct TrainOptions {
  RunObserver* observer = nullptr;        // with several processes, only the first one has it
  const RunRequests* requests = nullptr;  // answered after the current step or batch of an evaluation, on all ranks
  // Called in rank 0's process with the result, before any process returns: a launcher may end all processes when one
  // has ended.
  std::function<void(const TrainResult&)> tell = {};
};

/// Throws Error for bad input before anything is computed (for a training token outside of the vocabulary: when it is
/// read). Throws Failure ("rank 3: backward stage 1 ...") if a rank fails; in an MPI job the failure is printed and all
/// processes end. There every process gets a result, but only rank 0's is complete.
[[nodiscard]] TrainResult train(const RunConfig& config, const TrainOptions& options);

}  // namespace echelon
