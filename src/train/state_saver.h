// Saves the state of a run: every rank writes what it owns, and rank 0 publishes the manifest.
#pragma once

#include "blueprint/blueprint.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/state_file.h"
#include "engine/rank_run.h"
#include "train/agreed_failure.h"
#include "train/run_claim.h"

namespace echelon {

class StateSaver {
 public:
  /// All of them outlive the saver.
  struct Context {
    const Blueprint& blueprint;
    RankRun& run;
    Ops& ops;
    Mesh& host;                       // of the same ranks, for buffers in host memory
    const RunClaim* claim = nullptr;  // of the output folder, where rank 0 has it
  };

  /// `attempt`, the same on all ranks, is that of all manifests; `lineage` ends with it.
  StateSaver(const Context& context, std::int64_t attempt, std::vector<LineageEntry> lineage);

  /// Collective, between steps; the folder of checkpoints exists. None if the checkpoint is complete and durable; else
  /// what was written is removed.
  [[nodiscard]] std::optional<SharedFailure> save(const RunScalars& scalars);

  /// Which files all ranks write, for rank 0, which publishes them. Computed before the first save.
  struct Files {
    std::vector<Manifest::File> planned;  // all but their digests
    std::vector<int> ranks;               // that write them
    [[nodiscard]] std::int64_t num_bytes() const;
    [[nodiscard]] std::int64_t most_bytes() const;  // of a file
  };
  [[nodiscard]] const Files& files();
  /// Of this rank's file; 0 if it has none.
  [[nodiscard]] std::int64_t own_bytes() const { return slices_.empty() ? 0 : plan_.num_bytes(); }

 private:
  void plan_files();
  void publish(const std::filesystem::path& folder, const RunScalars& scalars, const std::vector<Digest>& headers);
  void remove_failed(const std::filesystem::path& folder);

  Context context_;
  std::vector<StateSlice> slices_;
  StateFilePlan plan_;
  Manifest manifest_;  // rank 0: all but files, scalars and copies, once they are planned
  Files files_;
};

/// Throws Failure if the disk of a folder has fewer bytes than are needed; what for, in words.
void require_space(const std::filesystem::path& folder, std::int64_t num_bytes, std::string_view what);

/// OUTPUT.DIR/FOLDER of a config.
[[nodiscard]] std::filesystem::path checkpoint_folder(const RunConfig& config);

}  // namespace echelon
