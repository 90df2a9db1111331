// Gives the ranks of a run the values with which it starts.
#pragma once

#include "checkpoint/model_reader.h"
#include "engine/run_observer.h"
#include "train/start/resume.h"

#include <string_view>

namespace echelon {

/// Where training starts, the same on all ranks.
struct RunStart {
  std::int64_t attempt = 1;
  RunScalars scalars;  // after the step from which it resumes, or step 0
  std::vector<LineageEntry> lineage;
  std::filesystem::path resumed_from;  // empty: it starts from nothing
  std::vector<std::int64_t> damaged;   // steps whose checkpoints cannot be read
};

/// What a run reads.
struct NamedData {
  std::string_view key;  // data.path or data.validation_path
  std::string_view path;
  DataFingerprint fingerprint;
};

/// Collective, before all others of a run: throws Error on a rank whose keys or whose data differ from those of rank 0,
/// so that a job never trains with two configs. A rank's threads, their binding and the path of its data are its own.
void require_same_run(const RunConfig& config, const NamedData& data, Comm& all);

/// What the ranks of one process know; all of it outlives the start.
struct RunStartContext {
  const RunConfig& config;
  const Resume& resume;
  const ModelReader* initial = nullptr;     // weights of a run that starts from nothing, or of the base of adapters
  const AdapterReader* adapters = nullptr;  // with which a run starts
  std::int64_t attempt = 1;                 // that of rank 0's process holds
  RunObserver& observer;
  int num_threads = 1;  // that draw initial weights
};

/// Collective: loads the newest checkpoint that can be read, or the initial weights. `host` is the mesh of the same
/// ranks for host memory. Throws Error if ranks see other checkpoints, or if none of them can be read.
[[nodiscard]] RunStart start_run(const RunStartContext& context, const RankView& rank, Mesh& host);

/// "resuming from step 10 of ...", or "starting".
[[nodiscard]] std::string start_line(const Resume& resume, std::size_t candidate);

}  // namespace echelon
