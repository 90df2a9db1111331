// Seconds of one operation on an otherwise idle device, by the roofline of Williams et al. 2009. The larger of its
// arithmetic over what the device reaches for such a matmul, and its bytes over the memory's bandwidth; plus what every
// operation costs whatever its size.
#pragma once

#include "ops/trace/trace_ops.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

[[nodiscard]] double operation_seconds(const OpRecord& operation, const DeviceSpec& device);

/// The rates of a format: those of float32 where the device has none of its own. Throws Error if it has neither.
[[nodiscard]] const FormatRates& rates_of(const DeviceSpec& device, DType dtype);

/// The machine of a run with training.float32_matmul_precision = 'high': products of float32 have the rates of
/// TensorFloat-32 on devices that have any. Attention in float32 keeps its own.
[[nodiscard]] MachineSpec with_tensorfloat32(MachineSpec machine);

}  // namespace echelon
