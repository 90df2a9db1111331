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

}  // namespace
}  // namespace echelon
