// Which file each rank writes for a checkpoint, and what is in it. Every rank knows that without asking another one.
#pragma once

#include "blueprint/blueprint.h"
#include "checkpoint/state/manifest.h"
#include "tensor/state_slice.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace echelon {

/// What the rank of `part` writes, in order. Of values that several ranks hold, each writes a share.
[[nodiscard]] std::vector<StateSlice> state_slices(const ModelPart& part);

/// Bytes of a rank's state that a snapshot of so many bytes has no room for: they are written where they are.
[[nodiscard]] std::int64_t bytes_in_place(const ModelPart& part, std::int64_t snapshot_bytes);

struct PlannedFile {
  int rank = 0;
  std::int64_t num_bytes = 0;
  std::vector<Range> parameters = {};  // of which it has a part, in the order of Manifest::parameters
  bool operator==(const PlannedFile&) const = default;
};

/// The file of one rank; none if it writes nothing. What it costs does not depend on how many ranks there are.
[[nodiscard]] std::optional<PlannedFile> planned_file(const Blueprint& blueprint, int rank);

/// The files of all ranks. Those that differ along the data axes alone are planned from one part of the model.
class SavePlan {
 public:
  explicit SavePlan(const Blueprint& blueprint);

  /// By rank; ranks that write nothing have none.
  [[nodiscard]] const std::vector<PlannedFile>& files() const { return files_; }
  [[nodiscard]] std::int64_t num_bytes() const;
  /// Of the largest file.
  [[nodiscard]] std::int64_t most_bytes() const;
  /// All but its digests, scalars and copies of other files.
  [[nodiscard]] Manifest manifest(std::int64_t attempt, std::vector<LineageEntry> lineage) const;
  /// Of the manifest of a run's first attempt, at most. Later ones add their lineage.
  [[nodiscard]] std::int64_t most_manifest_bytes() const;

 private:
  const Blueprint* blueprint_;
  std::vector<PlannedFile> files_;
  std::vector<std::pair<std::string, DType>> states_;
  std::set<std::string> frozen_;  // parameters that are saved without optimizer states
};

}  // namespace echelon
