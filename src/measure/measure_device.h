// Measures what one device reaches, for `echelon bench --device`: through the same operations that a step enqueues, so
// whatever a backend chooses or fuses is in it.
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
  std::int64_t largest_size = 16384;  // of a product's sides; copies have so many squared bytes, 256 MiB at most
  double sample_seconds = 0.03;       // of one operation, enqueued again and again
  int num_rounds = 3;                 // of which the median counts
  std::function<void(std::string_view what, double fraction)> progress = {};
};

/// Attention, forward and backward together.
struct AttentionTime {
  std::int64_t num_heads = 0, seq_len = 0, head_dim = 0;  // of one sequence
  double seconds = 0;
};

struct MeasuredDevice {
  // Of each format the measured products; as its peak the fastest of all. memory_bandwidth is that of a copy.
  DeviceSpec device;
  std::map<std::string, AttentionTime, std::less<>> attention;  // by format
};

/// Of the first device. A point of a product is the mean over the three products of a linear layer with these sizes: y
/// = x w^T, dx = dy w, dw += dy^T x.
[[nodiscard]] MeasuredDevice measure_device(Backend& backend, const DeviceMeasurement& options);

/// What collectives take among 2, 4, ... and all devices of this host; empty where it has one.
[[nodiscard]] std::vector<CollectiveCurve> measure_links(Backend& backend, const DeviceMeasurement& options);

}  // namespace echelon
