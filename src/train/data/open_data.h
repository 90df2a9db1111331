// The data of a run, checked before its first step.
#pragma once

#include "comm/launch/run_ranks.h"
#include "data/dataset_batches.h"
#include "engine/run_observer.h"
#include "spec/config/run_config.h"

namespace echelon {

/// The data of a run. Its packed sequences, where data.packing says so, may be not stored yet.
struct OpenedData {
  DatasetBatches batches;
  bool is_to_store = false;
};

/// data.path in shuffled order. Finds tokens outside of the vocabulary now, not when their batch is read. Checks the
/// whole text, or as much of a very long text as is read in a minute. The observer hears how much of packed data is
/// padding. Throws Error if there is nothing to predict.
[[nodiscard]] OpenedData open_training(const RunConfig& config, const RankPlacement& placement, RunObserver& observer);

/// data.path in shuffled order, for its documents alone: no token is checked.
[[nodiscard]] DatasetBatches open_documents(const RunConfig& config);

/// data.validation_path in order. Reads all of it once, to find tokens outside of the vocabulary now and not at the
/// first evaluation. Throws Error if there is nothing to predict.
[[nodiscard]] OpenedData open_validation(const RunConfig& config, const RankPlacement& placement,
                                         RunObserver& observer);

/// Stores what the first process packed, once nothing refuses the run. A failure is a warning.
void store_packing(const OpenedData& data, const RunConfig& config, RunObserver& observer);

}  // namespace echelon
