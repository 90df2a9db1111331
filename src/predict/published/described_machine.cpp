// From the words that tables use for GPUs and networks to a machine: the shipped machine of the GPU's name, and what
// the words say of memory and links.
#include "base/error.h"
#include "base/units.h"
#include "predict/published/published_row.h"
#include "predict/published/words.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

namespace echelon {
namespace {

constexpr double giga = 1e9;

/// Word in a GPU's name -> shipped machine. The first that occurs counts. What has no machine of its own takes the
/// closest one, with other peaks and links.
struct Gpu {
  std::string_view word, machine;
  double tflops = 0;      // in 16 bits, dense; 0: the machine's
  double tb_per_s = 0;    // of memory
  double memory_gib = 0;  // likewise
  double nvlink_gb = 0;   // of a device in one direction
};

// NVIDIA's data sheets.
constexpr Gpu gpus[] = {
    {"GB300", "gb300"},
    {"GB200", "gb200"},
    {"B300", "b200", 2250, 8, 268, 900},
    {"B200", "b200"},
    {"GH200", "h100", 989.4, 4, 95, 450},
    {"H200 NVL", "h200", 835.5, 0, 0, 450},
    {"H200", "h200"},
    {"H800", "h100", 989.4, 0, 0, 200},
    {"H20", "h100", 148, 4, 95, 450},
    {"H100 PCIE", "h100", 756, 2.04, 0, 64},
    {"H100 NVL", "h100", 835.5, 3.9, 93, 300},
    {"H100", "h100"},
    {"A800", "a100-80", 312, 0, 0, 200},
    {"A100", "a100-80"},
    {"AMPERE", "a100-80"},
    {"V100", "v100"},
    {"DGX-2", "v100-dgx2"},
    {"HOPPER", "h100"},
    {"BLACKWELL", "b200"},
};

/// What a pattern captured; 0 for dots alone.
double number(const std::string& digits) { return std::strtod(digits.c_str(), nullptr); }

/// The first number that `pattern` captures, or `otherwise`.
double number_in(const std::string& text, const char* pattern, double otherwise) {
  std::smatch match;
  const bool found = std::regex_search(text, match, std::regex(pattern, std::regex::icase));
  return found ? number(match[1].str()) : otherwise;
}

const Gpu& gpu_called(const std::string& words) {
  const std::string name = upper(words);
  std::vector<std::string_view> known;
  for (const Gpu& gpu : gpus) {
    // A workstation's Blackwell is no B200.
    if (names_model(name, gpu.word) && !has(name, "RTX")) return gpu;
    known.push_back(gpu.word);
  }
  throw Error(
      fmt::format("gpu = '{}' is not a GPU with known rates; did you mean {}?", words, closest_name(name, known)));
}

double memory_gb(const ClusterWords& words) {
  return number_in(words.gpu_mem_gb, R"(([0-9.]+))", number_in(words.gpu, R"((\d+) ?GB\b)", 0));
}

/// The variants that are shipped apart.
std::string machine_called(const ClusterWords& words, const Gpu& gpu) {
  const double memory = memory_gb(words);
  if (gpu.word == "A100" && memory > 0 && memory < 50) return "a100-40";
  if (gpu.word == "H100" && memory > 90 && memory < 100) return "h100-96";
  if (gpu.word == "V100" && number_in(words.intra, R"((\d+) ?GPU)", 8) > 8) return "v100-dgx2";
  return std::string(gpu.machine);
}

void set_device(const ClusterWords& words, const Gpu& gpu, DeviceSpec& device) {
  constexpr double usable = 0.99;  // a little less than the round number
  const double memory = memory_gb(words);
  if (std::abs(memory * gib * usable / static_cast<double>(device.memory_bytes) - 1) > 0.05 && memory > 0)
    device.memory_bytes = static_cast<std::int64_t>(memory * gib * usable);
  if (gpu.memory_gib > 0) device.memory_bytes = static_cast<std::int64_t>(gpu.memory_gib * gib);
  if (gpu.tb_per_s > 0) device.memory_bandwidth = gpu.tb_per_s * 1e12;
  const auto own = device.formats.find("bfloat16");
  if (gpu.tflops > 0 && own != device.formats.end()) {
    const double factor = gpu.tflops * 1e12 / own->second.peak_flops;
    for (auto& [format, rates] : device.formats)
      if (format == "bfloat16" || format == "float16" || format == "float8") rates.peak_flops *= factor;
  }
}

/// Of a node in one direction: "8x400Gb", "1600Gb RoCE", "800Gb/s total", "4x100Gb Omni-Path".
void set_network(const std::string& words, NodeSpec& node) {
  std::smatch match;
  if (std::regex_search(words, match, std::regex(R"((\d+) ?x ?([0-9.]+) ?G)", std::regex::icase))) {
    const double num_nics = number(match[1].str());
    require(num_nics >= 1 && num_nics <= 1024,
            "inter_per_node = '{}' does not give a number of cards between 1 and 1024 (use 8x400Gb)", words);
    node.num_nics = static_cast<std::int64_t>(num_nics);
    node.nic_bandwidth = number(match[2].str()) * giga / 8;
  } else if (std::regex_search(words, match, std::regex(R"(([0-9.]+) ?([GT])b)", std::regex::icase))) {
    node.nic_bandwidth = number(match[1].str()) * (upper(match[2].str()) == "T" ? 1000 : 1) * giga / 8 /
                         static_cast<double>(node.num_nics);
  }
  require(node.nic_bandwidth > 0, "inter_per_node = '{}' is a network without bandwidth (use 8x400Gb)", words);
}

/// More devices than the machine's nodes have come with their cards.
void set_devices(std::int64_t count, NodeSpec& node) {
  node.num_nics = std::max(node.num_nics, node.num_nics * count / node.num_devices);
  node.num_devices = count;
}

/// A run of powers of two leaves some devices of a rack of 72 idle: each rack gives the same number, unless that is
/// less than half of its devices.
void use_as_many(std::int64_t num_gpus, NodeSpec& node) {
  if (num_gpus <= node.num_devices) return;
  std::int64_t count = node.num_devices;
  while (num_gpus % count != 0) --count;
  if (2 * count < node.num_devices) return;
  node.num_nics = std::max<std::int64_t>(1, node.num_nics * count / node.num_devices);
  node.num_devices = count;
}

/// "NVL72" is in either.
constexpr const char* rack_pattern = R"(NVL(\d+))";
double devices_of_rack(const ClusterWords& words) {
  return number_in(words.intra, rack_pattern, number_in(words.gpu, rack_pattern, 0));
}

void set_links(const ClusterWords& of_cluster, const Gpu& gpu, NodeSpec& node) {
  const std::string& words = of_cluster.intra;
  constexpr double of_generation[] = {0, 80, 150, 300, 450, 900};  // GB/s of a GPU in one direction, NVLink 1 to 5
  const double generation = number_in(words, R"(NVLink ?(\d))", 0);
  if (generation >= 1 && generation <= 5) node.link.bandwidth = of_generation[static_cast<int>(generation)] * giga;
  if (gpu.nvlink_gb > 0) node.link.bandwidth = gpu.nvlink_gb * giga;
  if (std::regex_search(words, std::regex("PCIe", std::regex::icase))) {
    node.link.bandwidth = node.device.host_bandwidth;
    node.link.reduces_in_switch = false;
  }
  const double of_rack = devices_of_rack(of_cluster),
               num_devices =
                   of_rack > 0 ? of_rack : number_in(words, R"((\d+) ?GPU)", static_cast<double>(node.num_devices));
  require(num_devices >= 1 && num_devices <= 65536,
          "intra = '{}' does not give a number of GPUs between 1 and 65536 (use NVLink4 (8 GPU node))", words);
  set_devices(static_cast<std::int64_t>(num_devices), node);
}

}  // namespace

MachineSpec described_machine(const ClusterWords& words) {
  const Gpu& gpu = gpu_called(words.gpu);
  MachineSpec machine = read_machine(machine_called(words, gpu));
  machine.name = fmt::format("{} ({})", machine.name, words.gpu);
  NodeSpec& node = machine.nodes.front();
  node.count = 0;
  set_device(words, gpu, node.device);
  set_links(words, gpu, node);
  set_network(words.inter_per_node, node);
  if (devices_of_rack(words) > 0) use_as_many(words.num_gpus, node);
  return machine;
}

}  // namespace echelon
