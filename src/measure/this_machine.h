// The machine that the program runs on, used if no machine is named.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

/// Reads the stored measurement (measure/kept_machine.h), or measures now, in some seconds. Prints on stderr which of
/// the two, and where it is stored.
[[nodiscard]] MachineSpec this_machine();

}  // namespace echelon
