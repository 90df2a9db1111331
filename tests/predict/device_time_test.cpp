// Operations on a device: what can be worked out by hand, and products that were measured elsewhere.
#include "predict/machine/device_time.h"

#include "base/error.h"
#include "predict/machine/matmul_rate.h"
#include "spec/machine/shipped_machines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

namespace echelon {
namespace {

using ::testing::HasSubstr;

DeviceSpec device_of(const char* machine) { return read_machine(machine).nodes.front().device; }

/// TFLOP/s with everything that an operation costs.
double product_tflops(const DeviceSpec& device, std::int64_t m, std::int64_t n, std::int64_t k,
                      DType dtype = DType::bfloat16) {
  const OpRecord product = {.kind = OpKind::matmul,
                            .dtype = dtype,
                            .m = m,
                            .n = n,
                            .k = k,
                            .flops = 2 * m * n * k,
                            .bytes = 2 * (m * k + k * n + m * n)};
  return static_cast<double>(product.flops) / operation_seconds(product, device) / 1e12;
}

TEST(TileEfficiency, IsThatOfFullAndPartialWaves) {
  DeviceSpec device;
  device.num_multiprocessors = 10;
  device.tiles = {{.m = 100, .n = 100}};
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 1000, 100, 64, 0), 1);
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 1100, 100, 64, 0), 11.0 / 20);
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 950, 100, 64, 0), 0.95);
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 1000, 100, 64, 64), 0.5);
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 500, 100, 1000, 0), 1);    // two parts of k each
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 500, 100, 64, 64), 0.25);  // too short for that
  device.tiles.push_back({.m = 50, .n = 100, .efficiency = 0.9});
  // Three waves of small tiles, where large ones leave half a wave.
  EXPECT_DOUBLE_EQ(tile_efficiency(device, 1500, 100, 64, 0), 0.9);
}

TEST(DeviceTime, ProductsOfFloat32MayHaveTheRatesOfTensorFloat32) {
  const MachineSpec exact = read_machine("h100"), rounding = with_tensorfloat32(exact);
  const DeviceSpec &before = exact.nodes.front().device, &after = rounding.nodes.front().device;
  EXPECT_GT(product_tflops(after, 8192, 8192, 8192, DType::float32),
            4 * product_tflops(before, 8192, 8192, 8192, DType::float32));
  EXPECT_EQ(product_tflops(after, 8192, 8192, 8192), product_tflops(before, 8192, 8192, 8192));
  const OpRecord attention = {.kind = OpKind::attention,
                              .dtype = DType::float32,
                              .m = 4096,
                              .n = 4096LL * 4096 / 2,
                              .k = 128,
                              .flops = 1'000'000'000'000,
                              .bytes = 1};
  EXPECT_DOUBLE_EQ(operation_seconds(attention, after), operation_seconds(attention, before));
}

/// Attention of triton-lang/triton, pull request 1917, on A100: heads of 64 columns, causal, TFLOP/s of both passes.
TEST(DeviceTime, ShortAttentionIsSlowerAsMeasured) {
  const DeviceSpec device = device_of("a100-80");
  const auto rate = [&](std::int64_t T, double num_passes) {  // forward has 2 matmuls, backward 5
    const OpRecord op = {.kind = OpKind::attention,
                         .dtype = DType::bfloat16,
                         .m = 192,
                         .n = T * (T + 1) / 2,
                         .k = 64,
                         .flops = static_cast<std::int64_t>(num_passes * 192 * 2 * 64 * double(T) * double(T) / 2)};
    return static_cast<double>(op.flops) / (operation_seconds(op, device) - device.operation_seconds);
  };
  const std::map<std::int64_t, std::pair<double, double>> measured = {
      {1024, {86.9, 49.4}}, {2048, {108.9, 63.6}}, {4096, {125.6, 73.8}}, {8192, {138.0, 80.0}}};
  for (const auto& [T, forward_and_backward] : measured) {
    EXPECT_NEAR(rate(T, 2) / rate(16384, 2), forward_and_backward.first / 144.5, 0.03) << T;
    EXPECT_NEAR(rate(T, 5) / rate(16384, 5), forward_and_backward.second / 83.5, 0.03) << T;
  }
}

// A machine file names the formats that matter: what is not a product or attention needs no rate of its own.
TEST(DeviceTime, NeedsRatesOnlyForProductsAndAttention) {
  DeviceSpec device;
  device.memory_bandwidth = 1e12;
  device.formats["bfloat16"].peak_flops = 3e14;
  EXPECT_DOUBLE_EQ(
      operation_seconds({.kind = OpKind::adamw, .dtype = DType::float32, .m = 1, .flops = 10, .bytes = 1'000'000},
                        device),
      1e-6);
  EXPECT_NEAR(product_tflops(device, 4096, 4096, 4096), 300, 1e-6);
  try {
    (void)product_tflops(device, 64, 64, 64, DType::float32);
    FAIL() << "a product in float32 has no rate here";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "training.dtype = 'float32': the device has no rates for it (use bfloat16)");
  }
}

/// A product that others measured (sources: docs/results/machine-rates.md).
struct Product {
  const char* what;
  const char* machine;
  std::int64_t m, n, k;
  double tflops, tolerance;
  DType dtype = DType::bfloat16;
};

constexpr Product products[] = {
    {"1024^3 on A100", "a100-80", 1024, 1024, 1024, 89, 0.25},
    {"1536^3 on A100", "a100-80", 1536, 1536, 1536, 149, 0.1},
    {"2048^3 on A100", "a100-80", 2048, 2048, 2048, 196, 0.1},
    {"2304^3 on A100", "a100-80", 2304, 2304, 2304, 244, 0.05},
    {"2560^3 on A100", "a100-80", 2560, 2560, 2560, 231, 0.05},
    {"3072^3 on A100", "a100-80", 3072, 3072, 3072, 235, 0.05},
    {"3584^3 on A100", "a100-80", 3584, 3584, 3584, 242, 0.05},
    {"4096^3 on A100", "a100-80", 4096, 4096, 4096, 259, 0.05},
    {"4352^3 on A100", "a100-80", 4352, 4352, 4352, 246, 0.05},
    {"4608^3 on A100", "a100-80", 4608, 4608, 4608, 275, 0.05},
    {"5120^3 on A100", "a100-80", 5120, 5120, 5120, 261, 0.05},
    {"5632^3 on A100", "a100-80", 5632, 5632, 5632, 282, 0.05},
    {"6144^3 on A100", "a100-80", 6144, 6144, 6144, 276, 0.05},
    {"8192^3 on A100", "a100-80", 8192, 8192, 8192, 292, 0.06},
    {"1024 x 10240 x 5120 on A100, fastest found", "a100-80", 1024, 10240, 5120, 271.2, 0.05},
    {"2048 x 2048 x 13312 on H100, fastest found", "h100", 2048, 2048, 13312, 794.5, 0.06},
    {"8192^3 on H100", "h100", 8192, 8192, 8192, 716, 0.06},
    {"1792 x 16128 x 3072 on B200, fastest found", "b200", 1792, 16128, 3072, 1745, 0.05},
    {"8192^3 on V100, float16", "v100", 8192, 8192, 8192, 83, 0.05, DType::float16},
};

/// docs/results/machine-rates.md shows the same lines.
TEST(MatmulRate, IsAsMeasuredAndAsDocumented) {
  std::ifstream file(std::string(ECHELON_SOURCE_DIR) + "/docs/results/machine-rates.md");
  std::ostringstream document;
  document << file.rdbuf();
  double sum = 0;
  for (const Product& each : products) {
    const double predicted = product_tflops(device_of(each.machine), each.m, each.n, each.k, each.dtype);
    sum += std::abs(predicted / each.tflops - 1);
    EXPECT_NEAR(predicted / each.tflops, 1, each.tolerance) << each.what;
    EXPECT_THAT(document.str(),
                ::testing::HasSubstr(fmt::format("| {} | {} | {:.0f} |\n", each.what, each.tflops, predicted)));
  }
  EXPECT_LT(sum / std::size(products), 0.04);
}

TEST(MatmulRate, NeverExceedsThePeakAndMoreIsNeverFaster) {
  const DeviceSpec device = device_of("h100");
  const FormatRates& rates = device.formats.at("bfloat16");
  const auto seconds = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
           matmul_rate(device, rates, m, n, k);
  };
  for (const std::int64_t m : {1, 60, 128, 1000, 4096, 50000})
    for (const std::int64_t n : {1, 64, 333, 4096})
      for (const std::int64_t k : {1, 100, 1024, 20000}) {
        EXPECT_LE(matmul_rate(device, rates, m, n, k), rates.peak_flops);
        EXPECT_GE(seconds(2 * m, n, k), seconds(m, n, k) * 0.999) << m << " " << n << " " << k;
        EXPECT_GE(seconds(m, n, 2 * k), seconds(m, n, k) * 0.999) << m << " " << n << " " << k;
      }
}

TEST(MatmulRate, OfMeasuredPointsLiesBetweenThem) {
  const DeviceSpec device;
  FormatRates rates = {.peak_flops = 100};
  for (const std::int64_t m : {64, 256, 1024})
    for (const std::int64_t n : {64, 1024})
      for (const std::int64_t k : {64, 256, 1024})
        rates.points.push_back({m, n, k,
                                100.0 * static_cast<double>(k) / static_cast<double>(k + 64) * static_cast<double>(m) /
                                    static_cast<double>(m + 64)});
  const auto rate = [&](std::int64_t m, std::int64_t n, std::int64_t k) { return matmul_rate(device, rates, m, n, k); };
  for (const MatmulPoint& point : rates.points) EXPECT_NEAR(rate(point.m, point.n, point.k) / point.flops, 1, 1e-3);
  const double low = 25, high = 100.0 * 1024 / 1088 * 1024 / 1088;
  for (const std::int64_t m : {1, 100, 500, 100000})
    for (const std::int64_t k : {1, 200, 100000}) {
      EXPECT_GE(rate(m, 300, k), low * 0.999);
      EXPECT_LE(rate(m, 300, k), high * 1.001);
    }
  EXPECT_NEAR(rate(100000, 100000, 100000), high, 0.01 * high);  // as the largest
  EXPECT_NEAR(rate(1, 1, 1), low, 0.01 * low);                   // as the smallest
  EXPECT_NEAR(rate(512, 256, 512), 100.0 * 512 / 576 * 512 / 576, 8);
}

/// FlashAttention-2 (arXiv:2307.08691) on A100 80 GB, forward and backward, causal: heads of 128 at about 150 to 190
/// TFLOP/s from 2k to 16k, those of 64 less.
TEST(AttentionSeconds, AreThoseOfBlocks) {
  const DeviceSpec device = device_of("a100-80");
  const auto tflops = [&](std::int64_t queries, std::int64_t head) {
    const std::int64_t pairs = queries * (queries + 1) / 2;
    const OpRecord attention = {.kind = OpKind::attention,
                                .dtype = DType::bfloat16,
                                .m = 256,
                                .n = pairs,
                                .k = head,
                                .flops = 4 * 256 * pairs * head,
                                .bytes = 1};
    return static_cast<double>(attention.flops) / operation_seconds(attention, device) / 1e12;
  };
  EXPECT_NEAR(tflops(2048, 128), 165, 15);
  EXPECT_NEAR(tflops(16384, 128), 185, 15);
  EXPECT_LT(tflops(2048, 64), 0.9 * tflops(2048, 128));
  EXPECT_LT(tflops(512, 128), 0.9 * tflops(2048, 128));
}

std::string sentence_of(const DeviceSpec& device, DType dtype) {
  try {
    (void)rates_of(device, dtype);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(RatesOf, AFormatThatIsMissingAreRefusedWithTheClosest) {
  DeviceSpec device = {.name = "plain", .formats = {{"float32", {.peak_flops = 7}}}};
  EXPECT_EQ(rates_of(device, DType::float32).peak_flops, 7);
  EXPECT_EQ(sentence_of(device, DType::bfloat16),
            "training.dtype = 'bfloat16': the device 'plain' has no rates for it (use float32)");
  device.formats["float16"].peak_flops = 9;
  EXPECT_THAT(sentence_of(device, DType::bfloat16), HasSubstr("(use float16)"));
  EXPECT_THAT(sentence_of(device, DType::float64), HasSubstr("(use float32)"));
  device.formats.clear();
  EXPECT_THAT(sentence_of(device, DType::bfloat16), HasSubstr("(add formats.bfloat16 to its machine file)"));
}

std::optional<DType> dtype_called(std::string_view format) {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16})
    if (name_of(dtype) == format) return dtype;
  return std::nullopt;
}

class EveryFormat : public ::testing::TestWithParam<ShippedMachine> {};

// Every format has rates of its own or is named as one that the device lacks, and is timed by those rates or refused.
TEST_P(EveryFormat, OfAShippedMachineIsTimedAtItsOwnRateOrRefused) {
  const MachineSpec machine = read_machine(std::string(GetParam().name));
  for (const NodeSpec& node : machine.nodes) {
    const DeviceSpec& device = node.device;
    for (const std::string_view format : format_names) {
      SCOPED_TRACE(format);
      EXPECT_NE(device.formats.contains(format), device.lacks(format));
      const auto dtype = dtype_called(format);
      if (!dtype) continue;
      if (device.lacks(format)) {
        EXPECT_THAT(sentence_of(device, *dtype), HasSubstr(fmt::format("'{}': the device '{}'", format, device.name)));
        EXPECT_THROW((void)product_tflops(device, 8192, 8192, 8192, *dtype), Error);
        continue;
      }
      const double peak = device.formats.find(format)->second.peak_flops / 1e12;
      EXPECT_LT(product_tflops(device, 8192, 8192, 8192, *dtype), peak);
      EXPECT_GT(product_tflops(device, 8192, 8192, 8192, *dtype), 0.5 * peak);
    }
    const OpRecord in_float8 = {.kind = OpKind::matmul,
                                .dtype = DType::float16,
                                .m = 8192,
                                .n = 8192,
                                .k = 8192,
                                .flops = 1,
                                .bytes = 1,
                                .is_float8 = true};
    if (device.lacks("float8")) {
      EXPECT_THROW((void)operation_seconds(in_float8, device), Error);
    } else {
      EXPECT_GT(operation_seconds(in_float8, device), 0);
    }
    // Float32 may round to TensorFloat-32 where there is one; elsewhere it stays what it is.
    const DeviceSpec rounding = with_tensorfloat32(machine).nodes.front().device;
    EXPECT_EQ(rounding.formats.at("float32").peak_flops,
              device.formats.at(device.lacks("tensorfloat32") ? "float32" : "tensorfloat32").peak_flops);
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, EveryFormat,
                         ::testing::ValuesIn(shipped_machines().begin(), shipped_machines().end()),
                         [](const auto& each) {
                           std::string name(each.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DeviceTime, TensorFloat32WithoutRatesIsRefused) {
  MachineSpec machine = read_machine("h100");
  DeviceSpec& device = machine.nodes.front().device;
  device.formats.erase("tensorfloat32");
  EXPECT_THROW((void)with_tensorfloat32(machine), Error);
  device.unsupported_formats = {"tensorfloat32"};
  EXPECT_EQ(with_tensorfloat32(machine).nodes.front().device, device);
}

TEST(DeviceTime, ProductsInFloat8HaveItsRate) {
  DeviceSpec device;
  device.memory_bandwidth = 1e12;
  device.formats["bfloat16"].peak_flops = 1e12;
  OpRecord product = {
      .kind = OpKind::matmul, .dtype = DType::bfloat16, .m = 100, .n = 100, .k = 100, .flops = 2'000'000};
  EXPECT_DOUBLE_EQ(operation_seconds(product, device), 2e-6);
  product.is_float8 = true;
  EXPECT_THROW((void)operation_seconds(product, device), Error);
  device.formats["float8"].peak_flops = 2e12;
  EXPECT_DOUBLE_EQ(operation_seconds(product, device), 1e-6);
  // Operands are rounded before they are multiplied.
  product.bytes = 3'500'000;
  product.rounding_bytes = 3'000'000;
  EXPECT_DOUBLE_EQ(operation_seconds(product, device), 3e-6 + 1e-6);
  product.bytes = 5'000'000;
  EXPECT_DOUBLE_EQ(operation_seconds(product, device), 3e-6 + 2e-6);
}

}  // namespace
}  // namespace echelon
