// The peaks of a host, as `echelon bench` measures them and machines/NAME.toml stores them (format:
// docs/results/performance.md).
#pragma once

#include "spec/machine/disk_spec.h"
#include "spec/machine/host_curves.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace echelon {

/// Rates of one core or of all of them together. A multiply-add is two flops; bandwidths count bytes read and written.
/// 0: not supported, or not measured.
struct ComputeRates {
  double float32_flops = 0;  // multiply-adds of operands in registers
  double float64_flops = 0;
  double bfloat16_flops = 0;           // of the dot product that accumulates in float32
  double sgemm_flops = 0;              // of a large float32 matmul
  double attention_float32_flops = 0;  // attention and its gradients of a long sequence, by ranges of keys
  double attention_bfloat16_flops = 0;
  double copy_bandwidth = 0;   // y = x, far out of the caches
  double triad_bandwidth = 0;  // z = x + a y
  double read_bandwidth = 0;   // a sum
  bool operator==(const ComputeRates&) const = default;

  /// Peak of the format's own instructions; none if unknown. A CPU without bfloat16 multiplication uses float32.
  [[nodiscard]] std::optional<double> peak_flops(std::string_view dtype) const;
  /// The largest of the three bandwidths.
  [[nodiscard]] double memory_bandwidth() const;
};
[[nodiscard]] ComputeRates operator*(const ComputeRates& rates, double factor);

struct HostSpec {
  std::string processor;
  std::int64_t num_cores = 1;
  std::int64_t memory_bytes = 0;
  ComputeRates device = {};  // all cores together
  ComputeRates core = {};    // one of them, the others idle
  /// All-reduce among as many thread ranks as there are cores, at least two: seconds for 8 bytes, and bytes of the
  /// buffer per second for 64 MiB.
  double all_reduce_latency_seconds = 0;
  double all_reduce_bandwidth = 0;
  /// How far the median of the rounds was below the best of them, which counts: 0.01 is 1 %. 0: not known.
  ComputeRates device_spread = {}, core_spread = {};
  double all_reduce_latency_spread = 0, all_reduce_bandwidth_spread = 0;
  DiskSpec disk = {};  // of the folder that was named
  /// The kernels that multiply fastest, by dtype, and in `kind` the kind of CPU; empty: not measured.
  std::map<std::string, std::string> products = {};
  OperationCurves operations = {};    // empty: rates only
  DistanceCurves distances = {};      // likewise
  CollectiveCurves collectives = {};  // likewise
  bool operator==(const HostSpec&) const = default;
};

[[nodiscard]] std::string to_toml(const HostSpec& machine);
/// Whether `echelon bench` wrote the file: it has a table [machine].
[[nodiscard]] bool is_host_file(const std::string& path);
/// Throws Error with file and key for what cannot be read, is unknown or is missing.
[[nodiscard]] HostSpec read_host(const std::string& path);

}  // namespace echelon
