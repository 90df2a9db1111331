// What the checkpoints of a run take: bytes, which the blueprint plans, and seconds, by the machine's disk and memory.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/host/rank_pieces.h"
#include "predict/machine/host_time.h"
#include "spec/machine/machine_spec.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace echelon {

/// With checkpoint.async_mode: the step that takes the snapshot, and the thread that writes it.
struct PredictedSnapshot {
  std::int64_t num_bytes = 0;  // the largest copy of a rank
  double step_seconds = 0;     // of that step
  double longer_seconds = 0;   // of it: what other steps do not need
  // Of these: updates wait for the disk, as the snapshot has no room for all values. None: the disk was not measured.
  std::optional<double> waiting_seconds = {};
  std::optional<double> writer_core_seconds = {};  // of the cores that train, for all that a host writes
};

struct PredictedSave {
  std::int64_t num_files = 0, num_bytes = 0;  // of the files of all ranks
  std::int64_t largest_file_bytes = 0, most_manifest_bytes = 0;
  // Until a checkpoint is durable, and until one is read that no host has in memory. None: the disk was not measured.
  std::optional<double> save_seconds = {}, load_seconds = {};
  std::optional<PredictedSnapshot> snapshot = {};
};

/// Bytes alone.
[[nodiscard]] PredictedSave planned_save(const Blueprint& blueprint);
/// And what they take on the disk of one host.
[[nodiscard]] PredictedSave predicted_save_on_disk(const DiskSpec& disk, const Blueprint& blueprint);
/// Ranks on a host are threads. Throws the errors of simulate().
[[nodiscard]] PredictedSave predicted_save(const Blueprint& blueprint, const MachineSpec& machine);
/// Of one host, whose ranks are threads or processes. Throws the errors of host_step() and host_step_of_processes().
[[nodiscard]] PredictedSave predicted_save_on(const HostSpec& host, HostRanks ranks, const Blueprint& blueprint,
                                              const HostLoad& load = {});

/// A line of bytes, and one of seconds if any are known.
[[nodiscard]] std::string to_text(const PredictedSave& save);
/// Without the end of the line; empty if no seconds are known.
[[nodiscard]] std::string seconds_text(const PredictedSave& save);
[[nodiscard]] nlohmann::ordered_json to_json(const PredictedSave& save);

}  // namespace echelon
