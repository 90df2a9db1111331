// Saves the state of a run: every rank writes what it owns, and rank 0 publishes the manifest.
#pragma once

#include "blueprint/blueprint.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/state_file.h"
#include "engine/rank_run.h"
#include "train/agreed_failure.h"

namespace echelon {

class StateSaver {
 public:
  /// All of them outlive the saver.
  struct Context {
    const Blueprint& blueprint;
    RankRun& run;
    Ops& ops;
    Mesh& host;  // of the same ranks, for buffers in host memory
  };

  /// `attempt`, the same on all ranks, is that of all manifests; `lineage` ends with it.
  StateSaver(const Context& context, std::int64_t attempt, std::vector<LineageEntry> lineage);

  /// Collective, between steps. None if the checkpoint is complete and durable; else what was written is removed.
  [[nodiscard]] std::optional<SharedFailure> save(const RunScalars& scalars);

  /// Of the files with tensors, over all ranks. Known on rank 0 after the first save.
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  /// Of this rank's file; 0 if it has none.
  [[nodiscard]] std::int64_t own_bytes() const { return slices_.empty() ? 0 : plan_.num_bytes(); }

 private:
  void describe_files();
  void require_space(const std::filesystem::path& folder) const;
  void publish(const std::filesystem::path& folder, const RunScalars& scalars, const std::vector<Digest>& headers);
  void remove_failed(const std::filesystem::path& folder);

  Context context_;
  std::vector<StateSlice> slices_;
  StateFilePlan plan_;
  Manifest manifest_;              // rank 0: all but scalars and digests, once it is described
  std::vector<int> rank_of_file_;  // likewise
  std::int64_t num_bytes_ = 0;
};

/// OUTPUT.DIR/FOLDER of a config.
[[nodiscard]] std::filesystem::path checkpoint_folder(const RunConfig& config);

}  // namespace echelon
