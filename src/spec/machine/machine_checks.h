// What the keys of a machine file must satisfy together.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

/// Throws Error with `origin`, the keys and their values for a machine that contradicts itself.
void check(const MachineSpec& machine, const std::string& origin);

}  // namespace echelon
