// A whole training run, or in an MPI job the part of it that one process has: data, model, steps, evaluation, log and
// saving.
#pragma once

#include "comm/run_ranks.h"
#include "report/operation_table.h"
#include "report/step_report.h"
#include "spec/run_config.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace echelon {

struct TraceReport {
  std::filesystem::path folder;  // rank{r}_trace.json and rank{r}_operations.json of every rank
  OperationTable table;          // of rank 0
  std::int64_t step = 0;         // the last one that was traced,
  Timeline timeline = {};        // as rank 0's pipeline ran it; Event::rank is the rank along the pipeline
};

/// What a run tells while it goes on, from rank 0's thread. Functions may be empty; of several processes only the first
/// should have any.
struct TrainEvents {
  std::function<void(const std::string& line)> on_start;  // what is run, where and with what: a few lines
  std::function<void(const StepReport& report)> on_step;
  std::function<void(const EvaluationReport& report)> on_validation;
  std::function<void(const std::filesystem::path& folder)> on_saved;
  std::function<void(const TraceReport& trace)> on_trace = {};  // after the last traced step
};

struct TrainOptions {
  TrainEvents events;
  const std::atomic<bool>* stop_requested =
      nullptr;  // e.g. set by Ctrl-C: the run ends after the step at hand, on all ranks
};

struct TrainResult {
  StepReport last_step;
  std::optional<double> validation_loss;
  std::optional<double>
      validation_unigram_entropy;      // what a model would lose that knows nothing but the frequency of tokens
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

/// Mean loss in nats of `config.data.validation_path` (all of it, once) under the weights of
/// `config.checkpoint.initial_load_path`.
struct EvaluationResult {
  double loss = 0;
  std::int64_t num_targets = 0;
  double unigram_entropy = 0;
};
[[nodiscard]] EvaluationResult evaluate(const RunConfig& config);

}  // namespace echelon
