// Machine files: the shipped ones, round trips, and messages about errors in them.
#include "spec/machine/machine_spec.h"
#include "scratch_folder.h"

#include "base/error.h"
#include "spec/machine/shipped_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace echelon {
namespace {

using testing::HasSubstr;

const std::string small = R"(
name = "two"
[[node]]
num_devices = 2
num_nics = 1
nic_gbit_per_s = 100
[node.device]
memory_gib = 16
memory_gb_per_s = 900
[node.device.formats.float32]
peak_tflops = 15.7
[node.link]
bandwidth_gb_per_s = 150
)";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_machine(text, "two.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MachineSpec, UnitsStandInTheKeys) {
  const MachineSpec machine = parse_machine(small, "two.toml");
  const NodeSpec& node = machine.nodes.front();
  EXPECT_EQ(node.device.memory_bytes, std::int64_t{16} << 30);
  EXPECT_EQ(node.device.memory_bandwidth, 900e9);
  EXPECT_EQ(node.nic_bandwidth, 12.5e9);
  EXPECT_EQ(node.device.formats.at("float32").peak_flops, 15.7e12);
  EXPECT_EQ(machine.num_devices(), std::nullopt);
}

TEST(MachineSpec, WithoutANameHasThatOfItsFile) {
  const std::size_t name = small.find("name = ");
  const std::string unnamed = small.substr(0, name) + small.substr(small.find('\n', name) + 1);
  EXPECT_EQ(parse_machine(unnamed, "machines/two.toml").name, "two");
}

TEST(MachineSpec, MixedKindsOfNodesAreCounted) {
  const std::string node = small.substr(small.find("[[node]]"));
  const MachineSpec machine = parse_machine(with(small, "num_devices = 2", "num_devices = 2\ncount = 3") +
                                                with(node, "num_devices = 2", "num_devices = 4\ncount = 5"),
                                            "");
  EXPECT_EQ(machine.num_devices(), 3 * 2 + 5 * 4);
}

TEST(MachineSpec, AHostTakesItsUsualSecondsOrThoseOfTheFile) {
  const DeviceSpec usual = parse_machine(small, "").nodes.front().device;
  EXPECT_EQ(usual.launch_seconds, usual_launch_seconds);
  EXPECT_EQ(usual.collective_launch_seconds, usual_collective_launch_seconds);
  const auto with_line = [](const std::string& line) {
    return with(small, "memory_gib = 16", "memory_gib = 16\n" + line);
  };
  EXPECT_DOUBLE_EQ(parse_machine(with_line("launch_us = 5"), "").nodes.front().device.launch_seconds, 5e-6);
  for (const char* key : {"launch_us", "collective_launch_us"})
    for (const char* value : {"0", "-1"})
      EXPECT_EQ(error_of(with_line(fmt::format("{} = {}", key, value))),
                fmt::format("two.toml: node[0].device.{} = {} is impossible; it is above 0", key, value));
}

TEST(MachineSpec, ErrorsNameFileKeyValueAndTheNearest) {
  EXPECT_THAT(error_of(with(small, "num_nics", "num_nic")),
              HasSubstr("two.toml: node[0].num_nic: unknown key; did you mean num_nics?"));
  EXPECT_THAT(error_of(with(small, "formats.float32", "formats.float23")),
              HasSubstr("node[0].device.formats.float23: unknown format; did you mean float32?"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "")), HasSubstr("node[0].device.memory_gib is missing"));
  EXPECT_THAT(error_of(with(small, "peak_tflops = 15.7", "peak_tflops = -1")),
              HasSubstr("float32.peak_tflops = -1 is impossible; it is above 0"));
  EXPECT_THAT(error_of(with(small, "peak_tflops = 15.7", "peak_tflops = 15.7\nattention_efficiency = 40")),
              HasSubstr("attention_efficiency = 40 is above 1"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 1e30")),
              HasSubstr("memory_gib = 1e+30 is above 1000000 (use 1000000)"));
  EXPECT_THAT(error_of(with(small, "num_nics = 1", "num_nics = 9223372036854775807")),
              HasSubstr("is above 1000000000 (use 1000000000)"));
  EXPECT_THAT(error_of(with(small, "= 900", "= \"fast\"")),
              HasSubstr("memory_gb_per_s = 'fast' is not a number (use 1)"));
  EXPECT_THAT(error_of(with(small, "= 900", "= \"900\"")), HasSubstr("= '900' is not a number (use 900)"));
  EXPECT_THAT(error_of(with(small, "= 900", "= nan")), HasSubstr("memory_gb_per_s = nan is not a number (use 1)"));
  EXPECT_THAT(error_of(with(small, "= 900", "= inf")),
              HasSubstr("memory_gb_per_s = inf is above 1000000000000000 (use"));
  EXPECT_THAT(error_of(with(small, "num_devices = 2", "num_devices = 2.75")),
              HasSubstr("num_devices = 2.75 is not a whole number (use 3)"));
  EXPECT_THAT(error_of(small + "efficiency = 1.2\n"), HasSubstr("node[0].link.efficiency = 1.2 is above 1 (use 1)"));
  EXPECT_THAT(error_of(small + "kind = \"switch\"\n"),
              HasSubstr("node[0].link.kind = 'switch' is not one of all_to_all, ring, shared_memory"));
  EXPECT_THAT(error_of(with(small, "num_nics = 1", "")), HasSubstr("num_nics = 0, but nic_gbit_per_s = 100"));
  EXPECT_THAT(error_of(with(small, "bandwidth_gb_per_s = 150", "")),
              HasSubstr("node[0].link.bandwidth_gb_per_s is missing"));
  EXPECT_THAT(error_of(small + "[network]\noversubscription = 0.5\n"),
              HasSubstr("network.oversubscription = 0.5 is below 1 (use 1)"));
  EXPECT_THAT(error_of(small + "[[node.link.measured]]\ncollective = \"all_reduce\"\nbytes = [8, 8]\nus = [1, 2]\n"),
              HasSubstr("bytes do not ascend"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 16\nreserved_gib = 17")),
              HasSubstr("node[0].device.reserved_gib = 17 leaves nothing of memory_gib = 16 (use 1)"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 79.1\nreserved_gib = 100")),
              HasSubstr("reserved_gib = 100 leaves nothing of memory_gib = 79.1 (use 1)"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 16\nunsupported_formats = [\"float7\"]")),
              HasSubstr("unsupported_formats.float7: unknown format; did you mean float8?"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 16\nunsupported_formats = \"float8\"")),
              HasSubstr("unsupported_formats is not a list of formats"));
  EXPECT_THAT(error_of(with(small, "memory_gib = 16", "memory_gib = 16\nunsupported_formats = [\"float32\"]")),
              HasSubstr("unsupported_formats names 'float32', which formats.float32 has rates for; keep one of them"));
  EXPECT_THAT(error_of("name = \"none\""), HasSubstr("two.toml: [[node]] is missing"));
  EXPECT_THAT(error_of("name = "), HasSubstr("two.toml:1: "));
}

TEST(MachineSpec, AnUnknownNameGetsTheNearest) {
  try {
    (void)read_machine("h10");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the machine 'h10' is neither a file nor one of a100-40"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean h100?"));
  }
}

TEST(MachineSpec, OfAVendorsNameIsSuggestedAndOfAnotherNone) {
  EXPECT_EQ(read_machine("H200"), read_machine("h200"));
  const auto error_of_name = [](const std::string& name) -> std::string {
    try {
      (void)read_machine(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of_name("DGX-H100"), HasSubstr("did you mean h100?"));
  EXPECT_THAT(error_of_name("GB200-NVL72"), HasSubstr("did you mean gb200?"));
  for (const char* const name : {"mi300x", "tpu-v5p", "4090"})
    EXPECT_THAT(error_of_name(name), testing::Not(HasSubstr("did you mean"))) << name;
}

TEST(MachineSpec, IsReadFromItsPath) {
  const std::filesystem::path path = std::filesystem::path(scratch_folder()) / "two.toml";
  std::ofstream(path) << small;
  EXPECT_EQ(read_machine(path.string()).name, "two");
}

/// Values of all keys that the shipped files do not use.
TEST(MachineSpec, ARoundTripKeepsEverything) {
  MachineSpec machine = parse_machine(small, "");
  machine.source = "a \"quoted\" word";
  NodeSpec& node = machine.nodes.front();
  node.count = 3;
  node.price_per_device_hour = 0.1 + 0.2;
  node.device.memory_bytes = 12345678901;
  node.device.reserved_bytes = 1234567;
  node.device.communicator_bytes = 7654321;
  node.device.unsupported_formats = {"float8", "tensorfloat32"};
  node.device.operation_seconds = 1.0 / 3e6;
  FormatRates& rates = node.device.formats["bfloat16"];
  rates = {.peak_flops = 1e12 / 7,
           .matmul = {0.5, 1, 2, 3},
           .fastest_flops = 1e12 / 9,
           .points = {{1, 2, 3, 1e9 / 7}, {4, 5, 6, 1e11 / 3}}};
  node.link.kind = LinkKind::shared_memory;
  node.link.measured = {{Collective::all_gather, 2, {8, 65536}, {1.1e-6, 1.0 / 7e4}},
                        {Collective::transfer, 2, {8}, {1e-6}}};
  node.disk = {.write_bandwidth = 1e10 / 3, .read_bandwidth = 7e9, .write_core_bandwidth = 4e9, .sync_seconds = 3e-3};
  machine.network = {.latency_seconds = 5e-6,
                     .efficiency = 0.9,
                     .oversubscription = 2,
                     .nodes_per_leaf = 16,
                     .rail_optimized = true,
                     .reduces_in_switch = true};
  EXPECT_EQ(parse_machine(to_toml(machine), "written"), machine) << to_toml(machine);
}

/// The example of docs/reference/machines.md: two kinds of nodes.
TEST(MachineSpec, TheDocumentedFileIsRead) {
  std::ifstream file(std::string(ECHELON_SOURCE_DIR) + "/docs/reference/machines.md");
  std::ostringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const auto first = text.find("```toml\n") + 8;
  const std::string example = text.substr(first, text.find("```", first) - first);
  const MachineSpec machine = parse_machine(example, "docs/reference/machines.md");
  ASSERT_EQ(machine.nodes.size(), 2);
  EXPECT_EQ(machine.nodes.front().count, 4);
  EXPECT_EQ(machine.nodes.front().device.tiles.size(), 2);
  EXPECT_EQ(machine.nodes.back().device.formats.at("bfloat16").points.size(), 2);
  EXPECT_DOUBLE_EQ(machine.nodes.back().link.measured.front().seconds.back(), 7e-3);
  EXPECT_EQ(machine.network.oversubscription, 2);
  EXPECT_TRUE(machine.nodes.front().disk.is_known());
  EXPECT_FALSE(machine.nodes.back().disk.is_known());
  EXPECT_EQ(parse_machine(to_toml(machine), "written"), machine);
}

class Shipped : public testing::TestWithParam<ShippedMachine> {};

TEST_P(Shipped, IsReadAndWrittenAgain) {
  const MachineSpec machine = read_machine(std::string(GetParam().name));
  EXPECT_EQ(machine.name, GetParam().name);
  EXPECT_EQ(parse_machine(to_toml(machine), "written"), machine) << to_toml(machine);
}

void check_formats(const DeviceSpec& device) {
  for (const auto& [name, rates] : device.formats) {
    for (const MatmulPoint& point : rates.points) EXPECT_LE(point.flops, rates.peak_flops) << name;
    EXPECT_LE(rates.attention_efficiency, rates.matmul.efficiency) << name;
  }
  const auto ratio = [&](const char* a, const char* b) {
    return device.formats.at(a).peak_flops / device.formats.at(b).peak_flops;
  };
  EXPECT_GT(ratio("float32", "float64"), 1);
  EXPECT_GT(ratio("float16", "float32"), 1);
  if (!device.formats.contains("bfloat16")) return;
  EXPECT_EQ(ratio("bfloat16", "float16"), 1);
  EXPECT_NEAR(ratio("bfloat16", "tensorfloat32"), 2, 0.01);
  if (device.formats.contains("float8")) {
    EXPECT_NEAR(ratio("float8", "bfloat16"), 2, 0.01);
  }
}

/// Impossible machines: memory slower than its links, cards together faster than the links of their devices, a matmul
/// peak above what memory can feed with the reuse that fits on a multiprocessor.
TEST_P(Shipped, IsPhysical) {
  const MachineSpec machine = read_machine(std::string(GetParam().name));
  EXPECT_FALSE(machine.source.empty());
  for (const NodeSpec& node : machine.nodes) {
    const DeviceSpec& device = node.device;
    check_formats(device);
    EXPECT_GT(device.memory_bandwidth, 2 * node.link.bandwidth);
    EXPECT_GE(node.link.bandwidth * static_cast<double>(node.num_devices),
              static_cast<double>(node.num_nics) * node.nic_bandwidth);
    EXPECT_LT(device.host_bandwidth, node.link.bandwidth);
    EXPECT_EQ(device.vector_flops, device.formats.at("float32").peak_flops);
    EXPECT_LT(device.formats.at("float16").peak_flops / device.memory_bandwidth, 450) << "flops a byte";
    EXPECT_LT(node.link.latency_seconds, machine.network.latency_seconds);
    EXPECT_GT(device.reserved_bytes, std::int64_t{1} << 29);  // a CUDA context alone is about half a GiB
    EXPECT_GT(device.communicator_bytes, 0);
    EXPECT_GT(device.num_multiprocessors, 0);
    EXPECT_FALSE(device.tiles.empty());
  }
}

/// Peaks of the data sheets, computed from multiprocessors, their multiply-adds a cycle and the clock.
TEST(ShippedMachines, PeaksAreThoseOfTheClock) {
  const auto expect_peak = [](const char* machine, const char* format, double fmas_per_cycle, double clock) {
    const DeviceSpec device = read_machine(machine).nodes.front().device;
    EXPECT_NEAR(device.formats.at(format).peak_flops,
                2 * fmas_per_cycle * static_cast<double>(device.num_multiprocessors) * clock,
                5e-3 * device.formats.at(format).peak_flops)
        << machine << " " << format;
  };
  expect_peak("v100", "float16", 512, 1.53e9);
  expect_peak("a100-40", "float32", 64, 1.41e9);
  expect_peak("a100-80", "bfloat16", 1024, 1.41e9);
  expect_peak("h100", "bfloat16", 2048, 1.83e9);
  expect_peak("h200", "float8", 4096, 1.83e9);
}

INSTANTIATE_TEST_SUITE_P(Machines, Shipped, testing::ValuesIn(shipped_machines().begin(), shipped_machines().end()),
                         [](const auto& each) {
                           std::string name(each.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace echelon
