// The machine that the program runs on, where no machine is named.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

/// As it was measured once (measure/kept_machine.h); measured now, in some seconds, if it never was. Says on stderr
/// which of the two, and where it is kept.
[[nodiscard]] MachineSpec this_machine();

}  // namespace echelon
