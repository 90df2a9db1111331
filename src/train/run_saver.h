// What a run leaves on disk: checkpoints while it trains, and the model at its end.
#pragma once

#include "train/state_saver.h"

#include "engine/run_observer.h"

namespace echelon {

enum class SaveReason : std::uint8_t {
  interval,  // if a checkpoint is due
  request,   // one is asked for
  last,      // the run ends after it, so it must not fail
};

class RunSaver {
 public:
  /// All of them outlive the saver.
  struct Context {
    const RunConfig& config;
    StateSaver& state;
    RankRun& run;
    Ops& ops;
    Mesh& mesh;
    Mesh& host;  // of the same ranks, for buffers in host memory
    RunObserver& observer;
  };
  /// `resumed_from` is a folder, or empty. `damaged`: steps whose checkpoints cannot be read; they are neither counted
  /// nor deleted.
  RunSaver(const Context& context, std::filesystem::path resumed_from, std::vector<std::int64_t> damaged);

  /// On rank 0: a line about what will be written. Throws Failure if the disk has no space for a checkpoint and the
  /// model.
  [[nodiscard]] std::string plan();
  /// Collective, between steps: saves what is due after scalars.step, if that is not done yet. Throws Failure if the
  /// last save fails, or the third one in a row.
  void ended_step(const RunScalars& scalars, SaveReason reason);
  /// Collective, after all steps. Throws Failure.
  void write_model(std::int64_t step);

  /// The last checkpoint that this attempt has written; empty: none.
  [[nodiscard]] const std::filesystem::path& checkpoint() const { return checkpoint_; }
  /// Empty before write_model().
  [[nodiscard]] const std::filesystem::path& model() const { return model_; }

 private:
  void save(const RunScalars& scalars, bool is_last);
  void prune(std::int64_t step);
  [[nodiscard]] bool tells() const { return context_.host.rank() == 0; }

  Context context_;
  std::vector<std::int64_t> damaged_;
  std::filesystem::path resumed_from_, checkpoint_, model_;
  int failed_saves_ = 0;  // in a row
  std::int64_t saved_step_ = -1;
};

/// Whether something that is done every `interval` steps follows this one; 0: never.
[[nodiscard]] bool is_due(std::int64_t interval, std::int64_t step);

/// OUTPUT.DIR/model of a config: what its run leaves when it has made all its steps.
[[nodiscard]] std::filesystem::path model_folder(const RunConfig& config);

}  // namespace echelon
