// The device that a test program on a real GPU has open: whatever backend `echelon train --training.device=cuda` would
// take.
#pragma once

#include "backend/backend.h"

namespace echelon::chip {

[[nodiscard]] Backend& backend();
/// Of one rank, open for the whole program.
[[nodiscard]] RankDevice& device();

}  // namespace echelon::chip
