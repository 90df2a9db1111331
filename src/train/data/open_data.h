// The data of a run, checked before its first step.
#pragma once

#include "comm/launch/run_ranks.h"
#include "data/dataset_batches.h"
#include "engine/run_observer.h"
#include "spec/config/run_config.h"

namespace echelon {

/// data.path in shuffled order. Finds tokens outside of the vocabulary now, not when their batch is read. Checks the
/// whole text, or as much of a very long text as is read in a minute. Packs it where data.packing says so; the first
/// process stores the result, and the observer hears how much is padding.
[[nodiscard]] DatasetBatches open_training(const RunConfig& config, const RankPlacement& placement,
                                           RunObserver& observer);

/// data.path in shuffled order, for its documents alone: no token is checked, and nothing is stored.
[[nodiscard]] DatasetBatches open_documents(const RunConfig& config);

/// data.validation_path in order. Reads all of it once, to find tokens outside of the vocabulary now and not at the
/// first evaluation.
[[nodiscard]] DatasetBatches open_validation(const RunConfig& config, const RankPlacement& placement,
                                             RunObserver& observer);

}  // namespace echelon
