// What training data is known by, wherever its files are.
#pragma once

#include "checkpoint/state/manifest.h"
#include "data/dataset_batches.h"

namespace echelon {

/// Reads PREFIX.idx and 64 blocks of 4 KiB of PREFIX.bin. Throws Error if they cannot be read.
[[nodiscard]] DataFingerprint fingerprint_of(const DatasetBatches& batches);
/// "1000 bytes of tokens, index 0f3a..." for messages.
[[nodiscard]] std::string to_text(const DataFingerprint& fingerprint);

}  // namespace echelon
