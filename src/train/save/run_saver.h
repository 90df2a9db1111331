// What a run leaves on disk: checkpoints while it trains, and the model at its end.
#pragma once

#include "train/save/state_saver.h"

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
    BackgroundThread* background = nullptr;  // removes old checkpoints while training continues; null: it waits
  };
  /// `resumed_from` is a folder, or empty. `damaged`: steps whose checkpoints cannot be read; they are neither counted
  /// nor deleted.
  RunSaver(const Context& context, std::filesystem::path resumed_from, std::vector<std::int64_t> damaged);

  /// On rank 0: a line about what will be written; warns if the disk has no space for all checkpoints of a new run that
  /// are kept. Throws Failure if it has none for a checkpoint and the model, Error if a manifest could not be read
  /// again.
  [[nodiscard]] std::string plan();
  /// Collective, between steps: saves what is due after scalars.step, if that is not done yet, or starts to if training
  /// may continue meanwhile. Throws Failure if the last save fails, or the third one in a row.
  void ended_step(const RunScalars& scalars, SaveReason reason, bool may_continue);
  /// Collective: the work for the save that is under way is done on all ranks.
  void all_have_saved();
  /// Collective, after all steps. Throws Failure.
  void write_model(std::int64_t step);

  /// For the next step: whether it takes a snapshot, and whether this rank's work for the save under way is done.
  [[nodiscard]] bool needs_snapshot() const { return context_.state.needs_snapshot(); }
  [[nodiscard]] bool has_saved() { return context_.state.has_saved(); }
  [[nodiscard]] double take_waited_seconds() { return context_.state.take_waited_seconds(); }
  /// Checkpoints that were due while another one was under way, and were left out.
  [[nodiscard]] int num_left_out() const { return num_left_out_; }
  /// The last checkpoint that this attempt has written; empty: none.
  [[nodiscard]] const std::filesystem::path& checkpoint() const { return checkpoint_; }
  /// Empty before write_model().
  [[nodiscard]] const std::filesystem::path& model() const { return model_; }

 private:
  void warn_of_full_disk(std::int64_t checkpoint_bytes, std::int64_t model_bytes);
  void save(const RunScalars& scalars, SaveReason reason, bool may_continue);
  void saved(bool is_last);
  void prune(std::int64_t step);
  void tell_of_pruning();
  [[nodiscard]] bool tells() const { return context_.host.rank() == 0; }

  Context context_;
  std::vector<std::int64_t> damaged_;
  std::filesystem::path resumed_from_, checkpoint_, model_;
  int failed_saves_ = 0, num_left_out_ = 0;  // in a row; in all
  std::int64_t saved_step_ = -1;
  std::shared_ptr<StateWrite> pruning_;  // the last one, on rank 0
};

/// Whether something that is done every `interval` steps follows this one; 0: never.
[[nodiscard]] bool is_due(std::int64_t interval, std::int64_t step);

/// OUTPUT.DIR/model of a config: what its run leaves when it has made all its steps.
[[nodiscard]] std::filesystem::path model_folder(const RunConfig& config);

}  // namespace echelon
