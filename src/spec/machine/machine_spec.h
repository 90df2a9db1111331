// A cluster to train on: its devices, the nodes that hold them and the network between nodes. plan and simulate read
// hardware only from machines/NAME.toml (format: docs/reference/machines.md). Constants are from data sheets and
// measurements; each file names its sources.
#pragma once

#include "spec/machine/host_spec.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Fraction of the peak that a matmul C[m, n] = A[m, k] B[k, n] reaches: `efficiency` for large sizes, less for small
/// ones.
///   rate = peak efficiency m/(m + half_m) n/(n + half_n) k/(k + half_k), times the share of busy tiles
struct MatmulCurve {
  double efficiency = 1;
  double half_m = 0, half_n = 0, half_k = 0;
  bool operator==(const MatmulCurve&) const = default;
};

/// A measured matmul: flops per second.
struct MatmulPoint {
  std::int64_t m = 0, n = 0, k = 0;
  double flops = 0;
  bool operator==(const MatmulPoint&) const = default;
};

/// Dense rates in one format.
struct FormatRates {
  double peak_flops = 0;                 // of the data sheet, or of multiply-adds in registers
  MatmulCurve matmul = {};               // where nothing was measured
  double fastest_flops = 0;              // of the fastest measured matmul, y = x w^T; 0: not measured
  std::vector<MatmulPoint> points = {};  // measured matmuls; rates between them are interpolated
  double attention_efficiency = 0;       // of the matmuls in fused attention; 0: that of large matmuls
  bool operator==(const FormatRates&) const = default;
};

/// The tile of a matmul that one multiprocessor computes at a time.
struct MatmulTile {
  std::int64_t m = 0, n = 0;
  double efficiency = 1;  // of the largest tiles' rate: small ones read more operands per flop
  bool operator==(const MatmulTile&) const = default;
};

/// The formats that [node.device.formats] may name: the engine's, and those that only other software uses.
inline constexpr std::string_view format_names[] = {"float64",  "float32", "tensorfloat32",
                                                    "bfloat16", "float16", "float8"};

/// Of a program in C++ whose machine file does not say: kernels of 2.9 us that a loop launches take 3.8 us each (Gray
/// 2019, developer.nvidia.com/blog/cuda-graphs, on a V100).
inline constexpr double usual_launch_seconds = 3.8e-6;
/// Likewise; an estimate: NCCL makes a thread for each launch of a nonblocking communicator (cuda/comm/nccl_link.h).
inline constexpr double usual_collective_launch_seconds = 2e-5;

struct DeviceSpec {
  std::string name;
  // Memory that the driver gives to a program, slightly less than the data sheet's.
  std::int64_t memory_bytes = 0;
  std::int64_t reserved_bytes = 0;      // of it: the driver's context, libraries, and what they allocate
  std::int64_t communicator_bytes = 0;  // of it: buffers of a communicator
  double memory_bandwidth = 0;          // bytes read and written per second, of the data sheet
  double memory_efficiency = 1;         // fraction that large elementwise operations reach
  double vector_flops = 0;              // outside of matrix units, float32; 0: no limit known
  // Fixed time of any kernel: its start and tail.
  double operation_seconds = 0;
  // Of Echelon's host, to issue a kernel, and a collective or message: a device that is faster waits. 0: no time.
  double launch_seconds = 0, collective_launch_seconds = 0;
  double host_bandwidth = 0;  // bytes per second to the memory of the host; 0: not known
  // Multiprocessors, which compute a matmul's tiles in waves; 0: matmuls are not tiled.
  std::int64_t num_multiprocessors = 0;
  std::vector<MatmulTile> tiles = {};                       // libraries take the best of them
  std::map<std::string, FormatRates, std::less<>> formats;  // by dtype: float32, bfloat16, ...
  std::vector<std::string> unsupported_formats = {};        // without arithmetic of their own on the device
  bool operator==(const DeviceSpec&) const = default;

  [[nodiscard]] bool lacks(std::string_view format) const;
};

enum class LinkKind : std::uint8_t {
  all_to_all,     // a switch: every device reaches every other with its whole bandwidth (NVSwitch)
  ring,           // direct links or a bus: neighbours
  shared_memory,  // threads or processes of one host: a copy between caches
};
[[nodiscard]] std::string_view name_of(LinkKind kind);

/// How a link was measured.
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  transfer,
  barrier
};
[[nodiscard]] std::string_view name_of(Collective collective);

/// Seconds of a collective among `num_ranks` by the bytes of its whole buffer, ascending.
struct CollectiveCurve {
  Collective collective = Collective::all_reduce;
  std::int64_t num_ranks = 2;
  std::vector<double> bytes = {};
  std::vector<double> seconds = {};
  bool operator==(const CollectiveCurve&) const = default;
};

/// A link inside a node.
struct NodeLink {
  LinkKind kind = LinkKind::all_to_all;
  double bandwidth = 0;                        // bytes per second of one device in one direction
  double efficiency = 1;                       // fraction that collectives of large buffers reach
  double latency_seconds = 0;                  // of one hop of a small message
  double start_seconds = 0;                    // fixed time of any collective or transfer
  bool reduces_in_switch = false;              // NVLink SHARP
  double switch_efficiency = 1;                // fraction of the bandwidth that all-reduces in the switch reach
  std::vector<CollectiveCurve> measured = {};  // replace all of the above if present
  bool operator==(const NodeLink&) const = default;
};

/// One kind of node.
struct NodeSpec {
  std::string name;
  std::int64_t count = 0;  // 0: any number
  std::int64_t num_devices = 8;
  DeviceSpec device;
  NodeLink link;
  DiskSpec disk = {};
  std::int64_t num_nics = 0;
  double nic_bandwidth = 0;  // bytes per second of one card in one direction
  double price_per_device_hour = 0;
  bool operator==(const NodeSpec&) const = default;
};

/// The network between nodes.
struct NetworkSpec {
  double latency_seconds = 0;       // of one hop of a small message
  double efficiency = 1;            // fraction of the cards' bandwidth that collectives of large buffers reach
  double oversubscription = 1;      // of the links above a leaf switch, e.g. 2 for 2:1
  std::int64_t nodes_per_leaf = 0;  // 0: all
  // Rail-optimised: a leaf switch connects the cards at one position of their nodes, not all cards of its nodes.
  bool rail_optimized = false;
  bool reduces_in_switch = false;  // InfiniBand SHARP
  bool operator==(const NetworkSpec&) const = default;
};

struct MachineSpec {
  std::string name;
  std::string source;
  bool has_measured_rates = false;  // by `echelon tune`: none are borrowed from other software
  std::vector<NodeSpec> nodes;      // one entry per kind; ranks fill them in this order
  NetworkSpec network;
  // Measured by `echelon bench`: ranks are threads or processes of this host and share its cores.
  std::optional<HostSpec> host = {};
  bool operator==(const MachineSpec&) const = default;

  /// The number of devices; none: any number.
  [[nodiscard]] std::optional<std::int64_t> num_devices() const;
  /// Without the kinds of nodes that so many devices do not reach.
  [[nodiscard]] MachineSpec reached_by(std::int64_t num_wanted) const;
};

/// A machine that is shipped ("h100"), or the file of that path, which `echelon bench` may have written. Throws Error
/// with file and key for what cannot be read, is unknown, missing or impossible.
[[nodiscard]] MachineSpec read_machine(const std::string& name_or_path);

/// Of the file's text; `origin` names it in errors.
[[nodiscard]] MachineSpec parse_machine(std::string_view text, const std::string& origin);

/// One node of cores; ranks are any number of threads on them.
[[nodiscard]] MachineSpec machine_of(const HostSpec& host);

/// The text that parse_machine reads as `machine`, without its host.
[[nodiscard]] std::string to_toml(const MachineSpec& machine);

}  // namespace echelon
