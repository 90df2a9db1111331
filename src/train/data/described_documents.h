// Documents of which lengths alone are known, as the sequences of a run.
#pragma once

#include "blueprint/documents/batch_documents.h"

#include <cstdint>
#include <span>

namespace echelon {

/// In the order of the lengths, over and over; data.packing says how they become sequences. Throws Error if there are
/// too few tokens for one.
[[nodiscard]] DocumentsOf described_documents(const RunConfig& config, std::span<const std::int64_t> lengths);

}  // namespace echelon
