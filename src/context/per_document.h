// The token lists of `per_document`: head and tail of every document.
#pragma once

#include "context/token_run.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Appends the runs of all positions, ascending. Each document has 2 cp chunks of one size, of which rank r has r and
/// 2 cp - 1 - r. The tokens that are left over, fewer than 2 cp, are the document's first: they have the fewest pairs,
/// which is what the ranks differ by. They go round over all documents, up and down the ranks, so that the tokens of
/// two ranks differ by one at most. `documents`: DocumentOffsets.
void append_per_document(std::span<const std::int32_t> documents, int cp, std::vector<TokenRun>& runs);

}  // namespace echelon
