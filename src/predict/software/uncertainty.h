// How uncertain borrowed rates are.
#pragma once

#include "predict/software/software_profile.h"

namespace echelon {

/// The standard deviation of the logarithm of a share: of the common one, when each group of runs in turn is left out
/// (jackknife), and of the software generations around it, added as squares (benchmarks/accuracy/run --intervals).
[[nodiscard]] double spread_of(double Calibration::*share);

/// The machine with each kind of rate changed by a factor of its own, whose logarithm is uniform and has that spread.
/// A draw is the same on every computer; different ones are independent.
[[nodiscard]] MachineSpec drawn(MachineSpec machine, int draw);

/// Whether the rates of a request's machine are those of other software, so that they are uncertain.
[[nodiscard]] bool has_borrowed_rates(const SoftwareProfile& profile, const MachineSpec& machine);

}  // namespace echelon
