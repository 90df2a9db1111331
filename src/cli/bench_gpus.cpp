#include "cli/bench_gpus.h"

#include "base/error.h"
#include "base/units.h"
#include "ops/operations/attention.h"
#include "predict/machine/device_time.h"
#include "predict/published/published_row.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

/// From a data sheet; empty for a GPU that no shipped machine has.
MachineSpec shipped_machine_with(const std::string& gpu) {
  try {
    MachineSpec machine = described_machine({.gpu = gpu, .gpu_mem_gb = "", .intra = "", .inter_per_node = ""});
    machine.source = fmt::format("echelon bench --device=cuda; peaks, links and network of {}", machine.name);
    return machine;
  } catch (const Error&) {
    MachineSpec machine;
    machine.nodes.emplace_back();
    machine.source =
        "echelon bench --device=cuda; the peaks of this GPU are unknown; the fastest measured matmul of each format is "
        "used";
    return machine;
  }
}

double simulated_seconds(const AttentionTime& time, const DeviceSpec& device, DType dtype) {
  const std::int64_t pairs = num_visible_pairs(time.seq_len, time.seq_len);
  OpRecord forward = {.kind = OpKind::attention, .dtype = dtype, .m = time.num_heads, .n = pairs, .k = time.head_dim};
  forward.flops = 4 * time.num_heads * pairs * time.head_dim;
  OpRecord backward = forward;
  backward.kind = OpKind::attention_backward;
  backward.flops = 10 * time.num_heads * pairs * time.head_dim;
  return operation_seconds(forward, device) + operation_seconds(backward, device) - 2 * device.operation_seconds;
}

/// The efficiency for which the simulator predicts the measured time of attention.
double attention_efficiency(const AttentionTime& time, DeviceSpec device, std::string_view format) {
  device.formats.find(format)->second.attention_efficiency = 1;
  const double measured = std::max(time.seconds - 2 * device.operation_seconds, 1e-9);
  return std::clamp(simulated_seconds(time, device, parse_dtype(format)) / measured, 1e-6, 1.0);
}

void take_formats(const MeasuredDevice& measured, DeviceSpec& device) {
  for (const auto& [format, rates] : measured.device.formats) {
    FormatRates& own = device.formats[format];
    own.peak_flops = std::max(own.peak_flops, rates.peak_flops);
    own.fastest_flops = rates.fastest_flops;
    own.points = rates.points;
  }
  for (const auto& [format, time] : measured.attention) {
    const double efficiency = attention_efficiency(time, device, format);
    device.formats[format].attention_efficiency = efficiency;
  }
}

/// "nvidia-h100-80gb-hbm3"
std::string file_name_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : '-'; });
  return name;
}

std::string line_of(std::string_view name, const std::string& value) {
  return fmt::format("{:<36}{:>12}\n", name, value);
}

/// Rate of the largest matmul, whose sizes are in `largest`.
double rate_of_largest(const FormatRates& rates, MatmulPoint& largest) {
  largest = *std::max_element(rates.points.begin(), rates.points.end(), [](const MatmulPoint& a, const MatmulPoint& b) {
    return static_cast<double>(a.m) * static_cast<double>(a.n * a.k) <
           static_cast<double>(b.m) * static_cast<double>(b.n * b.k);
  });
  return largest.flops;
}

}  // namespace

MachineSpec measure_gpus(Backend& backend, const DeviceMeasurement& options) {
  const MeasuredDevice measured = measure_device(backend, options);
  MachineSpec machine = shipped_machine_with(measured.device.name);
  machine.name = file_name_of(measured.device.name);
  NodeSpec& node = machine.nodes.front();
  node.count = 1;
  node.num_devices = backend.num_devices();
  DeviceSpec& device = node.device;
  device.name = measured.device.name;
  device.memory_bytes = measured.device.memory_bytes;
  device.num_multiprocessors = measured.device.num_multiprocessors;
  device.memory_bandwidth = std::max(device.memory_bandwidth, measured.device.memory_bandwidth);
  device.memory_efficiency = measured.device.memory_bandwidth / device.memory_bandwidth;
  device.operation_seconds = measured.device.operation_seconds;
  device.launch_seconds = measured.device.launch_seconds;
  if (device.collective_launch_seconds == 0) device.collective_launch_seconds = usual_collective_launch_seconds;
  device.host_bandwidth = measured.device.host_bandwidth;
  take_formats(measured, device);
  node.link.measured = measure_links(backend, options);
  return machine;
}

std::string gpus_to_text(const MachineSpec& machine) {
  const NodeSpec& node = machine.nodes.front();
  const DeviceSpec& device = node.device;
  std::string text = fmt::format("{} x {}, {:.1f} GiB, {} multiprocessors\n", node.num_devices, device.name,
                                 static_cast<double>(device.memory_bytes) / gib, device.num_multiprocessors);
  text += line_of("memory copy, GB/s", fmt::format("{:.1f}", device.memory_bandwidth * device.memory_efficiency / 1e9));
  text += line_of("smallest operation, us", fmt::format("{:.2f}", device.operation_seconds * 1e6));
  text += line_of("its launch by the host, us", fmt::format("{:.2f}", device.launch_seconds * 1e6));
  text += line_of("from the host, GB/s", fmt::format("{:.1f}", device.host_bandwidth / 1e9));
  for (const auto& [format, rates] : device.formats) {
    if (rates.points.empty()) continue;
    MatmulPoint largest;
    const double rate = rate_of_largest(rates, largest);
    text += line_of(fmt::format("{} fastest y = x w^T, TFLOP/s", format),
                    fmt::format("{:.1f}", rates.fastest_flops / 1e12));
    text += line_of(fmt::format("{} matmul, TFLOP/s", format), fmt::format("{:.1f}", rate / 1e12));
    text.insert(text.size() - 1, fmt::format("  of {} x {} x {}, {:.1f} % of the peak", largest.m, largest.n, largest.k,
                                             100 * rate / rates.peak_flops));
    if (rates.attention_efficiency > 0)
      text += line_of("  attention, of the peak", fmt::format("{:.1f} %", 100 * rates.attention_efficiency));
  }
  for (const CollectiveCurve& curve : node.link.measured)
    text += line_of(fmt::format("{} among {} GPUs, GB/s", name_of(curve.collective), curve.num_ranks),
                    fmt::format("{:.1f}", curve.bytes.back() / curve.seconds.back() / 1e9));
  return text;
}

nlohmann::ordered_json to_json(const DiskSpec& disk) {
  return {{"write_bandwidth", disk.write_bandwidth},
          {"read_bandwidth", disk.read_bandwidth},
          {"write_core_bandwidth", disk.write_core_bandwidth},
          {"sync_seconds", disk.sync_seconds}};
}

std::string gpus_to_json(const MachineSpec& machine) {
  const NodeSpec& node = machine.nodes.front();
  const DeviceSpec& device = node.device;
  nlohmann::ordered_json json = {{"name", device.name},
                                 {"num_devices", node.num_devices},
                                 {"memory_bytes", device.memory_bytes},
                                 {"copy_bandwidth", device.memory_bandwidth * device.memory_efficiency},
                                 {"operation_seconds", device.operation_seconds},
                                 {"launch_seconds", device.launch_seconds},
                                 {"host_bandwidth", device.host_bandwidth}};
  if (node.disk.is_known()) json["disk"] = to_json(node.disk);
  for (const auto& [format, rates] : device.formats) {
    nlohmann::ordered_json& of = json["formats"][format] = {{"peak_flops", rates.peak_flops},
                                                            {"fastest_flops", rates.fastest_flops},
                                                            {"attention_efficiency", rates.attention_efficiency}};
    for (const MatmulPoint& p : rates.points)
      of["products"].push_back({{"m", p.m}, {"n", p.n}, {"k", p.k}, {"flops", p.flops}});
  }
  for (const CollectiveCurve& curve : node.link.measured)
    json["collectives"].push_back({{"collective", name_of(curve.collective)},
                                   {"num_ranks", curve.num_ranks},
                                   {"bytes", curve.bytes},
                                   {"seconds", curve.seconds}});
  return json.dump() + "\n";
}

}  // namespace echelon
