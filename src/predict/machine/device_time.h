// Seconds of one operation on an otherwise idle device, by the roofline of Williams et al. 2009. The larger of its
// arithmetic over what the device reaches for such a matmul, and its bytes over the memory's bandwidth; plus what every
// operation costs whatever its size.
#pragma once

#include "ops/trace/trace_ops.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

[[nodiscard]] double operation_seconds(const OpRecord& operation, const DeviceSpec& device);

/// The rates of a format. Throws Error with a format to use if the device has none: no format is timed as another one.
[[nodiscard]] const FormatRates& rates_of(const DeviceSpec& device, DType dtype);

/// The machine of a run with training.float32_matmul_precision = 'high': products of float32 have the rates of
/// TensorFloat-32, except on devices whose file names it unsupported. Attention in float32 keeps its own. Throws Error
/// for a device that has no rates of it and does not say why.
[[nodiscard]] MachineSpec with_tensorfloat32(MachineSpec machine);

}  // namespace echelon
