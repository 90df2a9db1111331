// The configs that differ from a given one in a single choice of the layout, or in the dtype.
#pragma once

#include "spec/config/config_changes.h"
#include "spec/machine/machine_spec.h"

#include <vector>

namespace echelon {

struct SingleChange {
  KeyChange change;
  // What has to change with it: data parallelism takes the ranks that another degree gives up, and gives those that it
  // takes; keys that only go with the old value return to their defaults.
  std::vector<KeyChange> with = {};
  RunConfig config;
};

/// Those that `train` accepts on as many ranks, with the same model and global batch. Order of the axes and dtypes are
/// those that the machine can tell apart.
[[nodiscard]] std::vector<SingleChange> single_changes(const RunConfig& config, const MachineSpec& machine);

}  // namespace echelon
