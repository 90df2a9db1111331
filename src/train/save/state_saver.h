// Saves the state of a run: every rank writes what it owns, and rank 0 publishes the manifest. Training waits for it,
// or continues while another thread writes what a snapshot holds.
#pragma once

#include "blueprint/save_plan.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/state_file.h"
#include "engine/rank_run.h"
#include "engine/rank_state.h"
#include "train/agreed_failure.h"
#include "train/save/background_thread.h"
#include "train/save/run_claim.h"
#include "train/save/state_write.h"

#include <map>
#include <set>

namespace echelon {

class StateSaver final : public SnapshotReader {
 public:
  /// All of them outlive the saver.
  struct Context {
    const Blueprint& blueprint;
    RankRun& run;
    Ops& ops;
    Mesh& host;                                        // of the same ranks, for buffers in host memory
    const RunClaim* claim = nullptr;                   // of the output folder, where rank 0 has it
    BackgroundThread* background = nullptr;            // of the process; needed to continue while a save is under way
    std::map<std::string, std::string> products = {};  // RankDevice::products()
    std::optional<Digest> base = {};                   // Resume::base()
  };

  /// `attempt`, the same on all ranks, is that of all manifests; `lineage` ends with it.
  StateSaver(const Context& context, std::int64_t attempt, std::vector<LineageEntry> lineage);
  /// Gives up what is under way.
  ~StateSaver() override;
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  /// Of the model whose adapters are saved.
  [[nodiscard]] const std::optional<Digest>& base() const { return context_.base; }

  // All of these are collective, between steps; the folder of checkpoints exists. A save without a failure is complete
  // and durable; of another one, all that was written is removed.

  /// Saves while training waits. No save is under way.
  [[nodiscard]] std::optional<SharedFailure> save(const RunScalars& scalars);

  /// Starts to save these scalars and the state that the next step will find, which takes a snapshot of it. No save is
  /// under way.
  void start(const RunScalars& scalars);
  [[nodiscard]] bool is_under_way() const { return phase_ != Phase::none; }
  /// All ranks have written; the manifest is left.
  [[nodiscard]] bool is_being_published() const { return phase_ == Phase::publishing; }
  /// The next step takes a snapshot.
  [[nodiscard]] bool needs_snapshot() const { return phase_ == Phase::started; }
  /// Drops a save that has no snapshot yet.
  void drop();
  /// What this rank has to do for the save now is done. When it is on all ranks, advance() does what comes next.
  [[nodiscard]] bool has_saved();
  /// True when the save has ended: see failure().
  [[nodiscard]] bool advance();
  /// Waits for the end of the save that is under way, which has its snapshot.
  void finish();
  /// Of the save that ended last: what it saved, and how long that took from its start to the end of the last rank.
  [[nodiscard]] const std::optional<SharedFailure>& failure() const { return failure_; }
  [[nodiscard]] const RunScalars& scalars() const { return scalars_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] bool has_waited() const { return background_ == nullptr; }

  // Called by the step that takes the snapshot.
  void taken() override;
  void release(const ShardedUnit& unit) override;
  /// How long updates have waited in release() since the last call.
  [[nodiscard]] double take_waited_seconds() { return std::exchange(waited_seconds_, 0); }

  /// Which files all ranks write, for rank 0, which publishes them. Computed before the first save.
  [[nodiscard]] const SavePlan& files();
  /// Of the manifest, at most.
  [[nodiscard]] std::int64_t most_manifest_bytes();
  /// Of this rank's file; 0 if it has none.
  [[nodiscard]] std::int64_t own_bytes() const { return slices_.empty() ? 0 : plan_->num_bytes(); }

 private:
  enum class Phase : std::uint8_t { none, started, writing, publishing };

  /// `background`: null for a thread of its own.
  void start_writing(std::vector<StateSource> sources, BackgroundThread* background);
  void start_publishing(const std::vector<Digest>& headers);
  void start_work(std::function<void(StateWrite&)> run, bool by_another_thread, BackgroundThread* background);
  void give_up();
  void remove_failed();
  [[nodiscard]] bool is_publisher() const { return context_.host.rank() == 0; }
  [[nodiscard]] const RunClaim* claim_to_check() const { return is_publisher() ? context_.claim : nullptr; }
  [[nodiscard]] StateWrite::Clock::time_point deadline() const;
  [[nodiscard]] StateWrite::Clock::duration patience() const;

  Context context_;
  std::vector<StateSlice> slices_;
  std::shared_ptr<const StateFilePlan> plan_;
  Manifest manifest_;  // rank 0: all but digests, scalars and copies, once they are planned
  std::optional<SavePlan> files_;

  // Of the save that is under way.
  Phase phase_ = Phase::none;
  RunScalars scalars_;
  std::filesystem::path folder_;
  StateWrite::Clock::time_point begun_;
  BackgroundThread* background_ = nullptr;  // that does the work
  std::thread thread_;                      // or this one
  std::shared_ptr<StateWrite> work_;
  std::shared_ptr<Digest> header_;       // of this rank's file, once it is written
  std::set<std::size_t> read_in_place_;  // units of which the snapshot has no copy

  std::optional<SharedFailure> failure_;  // of the last save
  double seconds_ = 0, waited_seconds_ = 0;
};

/// Throws Failure if the disk of a folder has fewer bytes than are needed; what for, in words.
void require_space(const std::filesystem::path& folder, std::int64_t num_bytes, std::string_view what);

/// OUTPUT.DIR/FOLDER of a config.
[[nodiscard]] std::filesystem::path checkpoint_folder(const RunConfig& config);

}  // namespace echelon
