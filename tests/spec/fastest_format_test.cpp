// The dtype that is taken where none is named.
#include "spec/machine/fastest_format.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

using Formats = std::vector<DType>;

MachineSpec machine_with(const std::map<std::string, FormatRates, std::less<>>& formats) {
  MachineSpec machine;
  machine.nodes.emplace_back().device.formats = formats;
  return machine;
}

FormatRates peak(double flops) { return {.peak_flops = flops}; }

TEST(FastestFormat, IsTheFastest16BitFormatOfGpus) {
  EXPECT_EQ(fastest_format(read_machine("v100")), DType::float16);
  EXPECT_EQ(fastest_format(read_machine("a100-80")), DType::bfloat16);
  EXPECT_EQ(formats_by_speed(read_machine("h100")),
            (Formats{DType::bfloat16, DType::float16, DType::float32, DType::float64}));
  EXPECT_EQ(formats_by_speed(read_machine("v100")), (Formats{DType::float16, DType::float32, DType::float64}));
}

TEST(FastestFormat, IsFloat32OnACpuWithoutInstructionsOf16Bits) {
  HostSpec host;
  host.core.float32_flops = 1e11;
  EXPECT_EQ(fastest_format(machine_of(host)), DType::float32);
  host.core.bfloat16_flops = 2e11;
  EXPECT_EQ(fastest_format(machine_of(host)), DType::bfloat16);
}

TEST(FastestFormat, IsNoneWhoseMatmulsWereNotMeasuredOnAHost) {
  HostSpec host;
  host.core = {.float32_flops = 1e11, .bfloat16_flops = 9e11};
  host.operations["matmul"]["float32"] = {{.m = 8, .n = 8, .k = 8, .amount = 1024, .busy_seconds = 1e-7}};
  EXPECT_EQ(fastest_format(machine_of(host)), DType::float32);
  host.operations["matmul"]["bfloat16"] = {{.m = 8, .n = 8, .k = 8, .amount = 1024, .busy_seconds = 1e-8}};
  EXPECT_EQ(fastest_format(machine_of(host)), DType::bfloat16);
}

TEST(FastestFormat, IsOfMeasuredProductsAndIgnoresTheirScatter) {
  FormatRates measured = peak(2e12);
  measured.points = {{8, 8, 8, 1.05e12}, {4, 4, 4, 3e11}};
  EXPECT_EQ(fastest_format(machine_with({{"float32", peak(1e12)}, {"bfloat16", measured}})), DType::float32);
  measured.points.front().flops = 1.5e12;
  EXPECT_EQ(fastest_format(machine_with({{"float32", peak(1e12)}, {"bfloat16", measured}})), DType::bfloat16);
}

TEST(FastestFormat, IsOneOfAllDevices) {
  MachineSpec mixed = machine_with({{"float16", peak(9)}, {"float32", peak(1)}});
  mixed.nodes.push_back(machine_with({{"bfloat16", peak(90)}, {"float32", peak(10)}}).nodes.front());
  EXPECT_EQ(fastest_format(mixed), DType::float32);
  mixed.nodes.back().device.formats = {{"bfloat16", peak(90)}};
  EXPECT_THROW((void)fastest_format(mixed), Error);
}

std::string sentence_of(const MachineSpec& machine, std::optional<DType> dtype = std::nullopt) {
  try {
    dtype ? require_format(machine, *dtype) : void(fastest_format(machine));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FastestFormat, IsOfTheNodesThatAreUsedAndNamesWhichLacksIt) {
  MachineSpec mixed = machine_with({{"float16", peak(9)}, {"float32", peak(1)}});
  mixed.name = "ours";
  mixed.nodes.front().name = "old";
  mixed.nodes.front().count = 4;
  mixed.nodes.push_back(machine_with({{"bfloat16", peak(90)}}).nodes.front());
  mixed.nodes.back().name = "new";
  EXPECT_EQ(fastest_format(mixed.reached_by(32)), DType::float16);
  const MachineSpec both = mixed.reached_by(33);
  EXPECT_EQ(sentence_of(both),
            "the devices of 'ours' have no format of training.dtype in common: node 'old' has float16, float32; node "
            "'new' has bfloat16 (use --gpus=32, or add [node.device.formats.float16] to node 'new')");
  EXPECT_EQ(sentence_of(both, DType::float16),
            "training.dtype = 'float16': the devices of node 'new' have no rates for it (use --gpus=32, or add "
            "[node.device.formats.float16] to node 'new')");
  mixed.nodes.back().device.formats.emplace("float16", peak(80));
  EXPECT_EQ(sentence_of(mixed, DType::float16), "");
  EXPECT_EQ(sentence_of(mixed, DType::bfloat16),
            "training.dtype = 'bfloat16': the devices of node 'old' have no rates for it (use float16)");
}

}  // namespace
}  // namespace echelon
