// What a value of a key must be, whatever the others are.
#pragma once

#include "spec/config/run_config.h"

namespace echelon {

/// Throws Error with a valid value for every number that is outside the range of its key; those of the model are
/// checked with it.
void check_ranges(const RunConfig& config);
/// And for more units ahead than the model has.
void check_prefetch_depth(const RunConfig& config);

}  // namespace echelon
