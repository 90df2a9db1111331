// What a matmul C[m, n] = A[m, k] B[k, n] reaches on a device.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

/// Flops per second. Where matmuls were measured, between them; else the format's curve, and on a device of many
/// multiprocessors what its tiles and waves leave.
[[nodiscard]] double matmul_rate(const DeviceSpec& device, const FormatRates& rates, std::int64_t m, std::int64_t n,
                                 std::int64_t k);

/// The share of the multiprocessors' time in which they compute parts of C, for the best of the tiles. C is split into
/// tiles, each of which one multiprocessor computes whole. A wave has as many tiles as there are multiprocessors, and
/// the last wave is seldom full. A matmul of few tiles and a long k is split along k too.
[[nodiscard]] double tile_efficiency(const DeviceSpec& device, std::int64_t m, std::int64_t n, std::int64_t k,
                                     double half_k);

}  // namespace echelon
