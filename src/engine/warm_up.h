// A first run of a rank's programs without its peers, for devices that load, choose and time what they compute with
// when it is first needed. Loading may wait for all that is under way there: in a pipeline also for a transfer that was
// started ahead, and which may come only after what is to be loaded. Communication may have to wait for it.
#pragma once

#include "backend/backend.h"
#include "blueprint/blueprint.h"

namespace echelon {

/// Computes a step of each program in memory that is given back at the end; where documents are masked, two. Nothing is
/// sent, and what was computed means nothing.
void warm_up(const Blueprint& blueprint, RankDevice& device);

}  // namespace echelon
