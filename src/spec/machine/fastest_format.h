// The dtype of a run whose config names none.
#pragma once

#include "spec/machine/machine_spec.h"
#include "tensor/dtype.h"

#include <vector>

namespace echelon {

/// The formats that training.dtype may have on every device of the machine, fastest matmuls first; of equally fast ones
/// the wider range comes first. float64 is last: it is for checks.
[[nodiscard]] std::vector<DType> formats_by_speed(const MachineSpec& machine);

/// The first of them. Throws Error with what each node has if they have none in common.
[[nodiscard]] DType fastest_format(const MachineSpec& machine);

/// Throws Error naming the first node whose devices have no rates of training.dtype, and what all have.
void require_format(const MachineSpec& machine, DType dtype);

}  // namespace echelon
