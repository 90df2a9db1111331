// A cluster to train on: its devices, the nodes that hold them and the network between nodes. What plan and simulate know of hardware, from
// machines/NAME.toml (format: docs/machines.md). Constants are those of data sheets and of measurements; each file names its sources.
#pragma once

#include "spec/host_spec.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// What a product C[m, n] = A[m, k] B[k, n] reaches of the peak: `efficiency` for large sizes, less for small ones.
///   rate = peak efficiency m/(m + half_m) n/(n + half_n) k/(k + half_k)
struct MatmulCurve {
  double efficiency = 1;
  double half_m = 0, half_n = 0, half_k = 0;
  bool operator==(const MatmulCurve&) const = default;
};

/// A measured product: flops per second.
struct MatmulPoint {
  std::int64_t m = 0, n = 0, k = 0;
  double flops = 0;
  bool operator==(const MatmulPoint&) const = default;
};

/// Dense rates in one format.
struct FormatRates {
  double peak_flops = 0;                 // of the data sheet, or of multiply-adds in registers
  MatmulCurve matmul = {};               // where nothing was measured
  std::vector<MatmulPoint> points = {};  // measured products; between them rates are interpolated
  double attention_efficiency = 0;       // of a fused attention's products; 0: that of large products
  bool operator==(const FormatRates&) const = default;
};

struct DeviceSpec {
  std::string name;
  std::int64_t memory_bytes = 0;
  double memory_bandwidth = 0;                 // bytes read and written per second, of the data sheet
  double memory_efficiency = 1;                // what large elementwise operations reach of it
  double vector_flops = 0;                     // outside of matrix units, float32; 0: no limit known
  double operation_seconds = 0;                // of any operation, whatever its size: a kernel's launch and tail
  std::map<std::string, FormatRates> formats;  // by dtype: float32, bfloat16, ...
  bool operator==(const DeviceSpec&) const = default;
};

enum class LinkKind : std::uint8_t {
  all_to_all,     // a switch: every device reaches every other with its whole bandwidth (NVSwitch)
  ring,           // direct links or a bus: neighbours
  shared_memory,  // threads or processes of one host: a copy between caches
};
[[nodiscard]] std::string_view name_of(LinkKind kind);

/// Inside a node.
struct NodeLink {
  LinkKind kind = LinkKind::all_to_all;
  double bandwidth = 0;            // bytes per second of one device in one direction
  double efficiency = 1;           // what collectives of large buffers reach of it
  double latency_seconds = 0;      // of one hop
  bool reduces_in_switch = false;  // NVLink SHARP
  bool operator==(const NodeLink&) const = default;
};

/// One kind of node.
struct NodeSpec {
  std::string name;
  std::int64_t count = 0;  // 0: as many as are asked for
  std::int64_t num_devices = 8;
  DeviceSpec device;
  NodeLink link;
  std::int64_t num_nics = 0;
  double nic_bandwidth = 0;  // bytes per second of one card in one direction
  double price_per_device_hour = 0;
  bool operator==(const NodeSpec&) const = default;
};

/// Between nodes.
struct NetworkSpec {
  double latency_seconds = 0;
  double efficiency = 1;            // what collectives of large buffers reach of the cards' bandwidth
  double oversubscription = 1;      // of the links above a leaf switch, e.g. 2 for 2:1
  std::int64_t nodes_per_leaf = 0;  // 0: all
  bool operator==(const NetworkSpec&) const = default;
};

struct MachineSpec {
  std::string name;
  std::string source;
  std::vector<NodeSpec> nodes;  // one entry per kind; ranks fill them in this order
  NetworkSpec network;
  std::optional<HostSpec> host;  // measured by `echelon bench`: ranks are threads or processes of this host, and share its cores
  bool operator==(const MachineSpec&) const = default;

  /// Devices there are; none: any number.
  [[nodiscard]] std::optional<std::int64_t> num_devices() const;
};

/// Throws Error with file and key for what cannot be read, is unknown, missing or impossible.
[[nodiscard]] MachineSpec read_machine(const std::string& path);

}  // namespace echelon
