#include "cli/inspect/inspect_checkpoint.h"

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/state_reader.h"
#include "cli/inspect/print_json.h"

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct Checkpoint {
  Manifest manifest;
  RunConfig config;
  bool is_verified = false;

  [[nodiscard]] std::int64_t num_bytes() const {
    std::int64_t sum = 0;
    for (const Manifest::File& file : manifest.files) sum += file.num_bytes;
    return sum;
  }
};

Checkpoint read_checkpoint(const fs::path& folder, bool verify) {
  const StateReader reader(folder);
  if (verify) reader.verify();
  return {.manifest = reader.manifest(), .config = config_of(reader.manifest(), folder), .is_verified = verify};
}

void print(const Checkpoint& checkpoint) {
  const auto& [manifest, config, is_verified] = checkpoint;
  const RunScalars& scalars = manifest.scalars;
  const std::string adapters = config.lora.exists() ? fmt::format("adapters of rank {} of ", config.lora.rank) : "";
  fmt::print("step {} of {}: {}{} of {} parameters, {} of {} read, {} skipped\n", scalars.step, config.training.steps,
             adapters, name_of(config.model.family), config.model.num_parameters(),
             counted(scalars.sequences, "sequence"), counted(scalars.seq_len, "token"),
             counted(scalars.skipped_steps, "step"));
  if (scalars.loss_scale)
    fmt::print("loss scale {}, {} since it changed\n", *scalars.loss_scale,
               counted(scalars.steps_since_scale_changed, "step"));
  for (const auto& [state, dtype] : manifest.states) fmt::print("{}: {}\n", printable(state), name_of(dtype));
  for (const LineageEntry& entry : manifest.lineage) {
    fmt::print("attempt {}: {}\n", entry.attempt,
               entry.from.empty() ? "started" : "resumed from " + printable(entry.from));
    for (const std::string& change : entry.changes) fmt::print("  {}\n", printable(change));
  }
  fmt::print("{}, {:.1f} MB{}\n", counted(manifest.files.size(), "file"),
             static_cast<double>(checkpoint.num_bytes()) / 1e6,
             is_verified ? ", equal to their digests" : "; --verify compares them with their digests");
}

nlohmann::ordered_json to_json(const Checkpoint& checkpoint) {
  const RunScalars& scalars = checkpoint.manifest.scalars;
  auto lineage = nlohmann::ordered_json::array();
  for (const LineageEntry& entry : checkpoint.manifest.lineage)
    lineage.push_back({{"attempt", entry.attempt}, {"from", entry.from}, {"changes", entry.changes}});
  nlohmann::ordered_json json = {{"step", scalars.step},
                                 {"skipped_steps", scalars.skipped_steps},
                                 {"sequences", scalars.sequences},
                                 {"seq_len", scalars.seq_len},
                                 {"attempt", checkpoint.manifest.attempt},
                                 {"num_files", checkpoint.manifest.files.size()},
                                 {"num_bytes", checkpoint.num_bytes()},
                                 {"lineage", lineage}};
  if (scalars.loss_scale) json["loss_scale"] = *scalars.loss_scale;
  for (const auto& [state, dtype] : checkpoint.manifest.states) json["states"][state] = name_of(dtype);
  if (checkpoint.is_verified) json["is_verified"] = true;
  return json;
}

}  // namespace

ExitStatus inspect_checkpoint(const std::filesystem::path& folder, bool verify, bool json) {
  const Checkpoint checkpoint = read_checkpoint(folder, verify);
  json ? print_json(to_json(checkpoint)) : print(checkpoint);
  return ExitStatus::success;
}

}  // namespace echelon
