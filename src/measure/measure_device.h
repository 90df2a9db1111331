// Measures the rates of one device for `echelon bench --device`. It uses the operations that a step enqueues, so the
// backend's choices and fusions are included.
#pragma once

#include "backend/backend.h"
#include "spec/machine/machine_spec.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

struct DeviceMeasurement {
  std::int64_t largest_size = 16384;  // largest matmul side; copies have its square in bytes, at most 256 MiB
  double sample_seconds = 0.03;       // of one operation, enqueued repeatedly
  int num_rounds = 3;                 // rounds, of which the median counts
  std::function<void(std::string_view what, double fraction)> progress = {};
};

/// Attention, forward and backward together.
struct AttentionTime {
  std::int64_t num_heads = 0, seq_len = 0, head_dim = 0;  // of one sequence
  double seconds = 0;
};

struct MeasuredDevice {
  // The measured matmuls of each format; its peak is the fastest. memory_bandwidth is that of a copy.
  DeviceSpec device;
  std::map<std::string, AttentionTime, std::less<>> attention;  // by format
};

/// Measures the first device. A matmul's point is the mean over the three matmuls of a linear layer with these sizes: y
/// = x w^T, dx = dy w, dw += dy^T x.
[[nodiscard]] MeasuredDevice measure_device(Backend& backend, const DeviceMeasurement& options);

/// Times of collectives among 2, 4, ... and all devices of this host; empty if it has one device.
[[nodiscard]] std::vector<CollectiveCurve> measure_links(Backend& backend, const DeviceMeasurement& options);

}  // namespace echelon
