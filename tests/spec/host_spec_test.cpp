// Files that describe a machine, and the steps that a config names for a trace.
#include "spec/machine/host_spec.h"
#include "scratch_folder.h"

#include "base/error.h"
#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string write(const std::string& text) {
  const std::string path = (std::filesystem::path(scratch_folder()) / "echelon-machine.toml").string();
  std::ofstream(path) << text;
  return path;
}

HostSpec example_host() {
  HostSpec machine;
  machine.processor = "some processor";
  machine.num_cores = 2;
  machine.memory_bytes = std::int64_t{24} << 30;
  machine.device = {.float32_flops = 2e11,
                    .float64_flops = 1e11,
                    .copy_bandwidth = 8e10,
                    .triad_bandwidth = 7e10,
                    .read_bandwidth = 6e10};
  machine.core = {.float32_flops = 1e11, .sgemm_flops = 9.5e10, .attention_bfloat16_flops = 4e11};
  machine.all_reduce_latency_seconds = 2e-6;
  machine.all_reduce_bandwidth = 5e9;
  machine.operations["matmul"]["float32"] = {{16, 16, 16, 8192, 8e-6, 9e-6, 7e-6},
                                             {1024, 16, 16, 524288, 2.5e-5, 3e-5, 2e-5}};
  machine.operations["gelu"]["bfloat16"] = {{32, 64, 1, 8192, 1e-6, 1e-6, 1e-6}};
  machine.distances["matmul"]["float32"] = {{2 << 20, 1e-12, 5e-13}, {8 << 20, 3e-12, 2e-12}};
  machine.collectives["thread"]["all_reduce"] = {{2, 4096, 6e-7}, {8, 16 << 20, 6.25e-3}};
  return machine;
}

TEST(HostSpec, IsReadAsItWasWritten) { EXPECT_EQ(read_host(write(to_toml(example_host()))), example_host()); }

// A machine has rates of its disk only if a folder was named.
TEST(HostSpec, ADiskIsReadAsItWasWritten) {
  EXPECT_THAT(to_toml(example_host()), testing::Not(HasSubstr("[disk]")));
  HostSpec machine = example_host();
  machine.disk = {.write_bandwidth = 2e9, .read_bandwidth = 1.5e9, .write_core_bandwidth = 5e9, .sync_seconds = 7.5e-3};
  const std::string text = to_toml(machine);
  EXPECT_EQ(read_host(write(text)), machine);
  EXPECT_EQ(read_machine(write(text)).nodes.front().disk, machine.disk);
  const std::string key = "sync_seconds = 7.5000e-03\n";
  ASSERT_THAT(text, HasSubstr(key));
  EXPECT_THAT([&] { (void)read_host(write(std::string(text).erase(text.find(key), key.size()))); },
              ThrowsMessage<Error>(HasSubstr("disk.sync_seconds is missing")));
}

// Files of earlier versions have no spreads; a spread that is named must be a rate's.
TEST(HostSpec, SpreadsAreReadAsTheyWereWritten) {
  EXPECT_THAT(to_toml(example_host()), testing::Not(HasSubstr("spread")));
  HostSpec machine = example_host();
  machine.device_spread = {.float32_flops = 0.015625, .read_bandwidth = 0.25};
  machine.core_spread = {.sgemm_flops = 0.5};
  machine.all_reduce_latency_spread = 0.125;
  const std::string text = to_toml(machine), table = "[core_spread]";
  EXPECT_EQ(read_host(write(text)), machine);
  ASSERT_THAT(text, HasSubstr(table));
  EXPECT_THAT(
      [&] { (void)read_host(write(std::string(text).replace(text.find(table), table.size(), "[cord_spread]"))); },
      ThrowsMessage<Error>(HasSubstr("did you mean core_spread.attention_bfloat16_flops?")));
}

TEST(HostSpec, ProductsAreReadAsTheyWereWritten) {
  HostSpec machine = example_host();
  EXPECT_THAT(to_toml(machine), testing::Not(HasSubstr("[products]")));
  machine.products = {{"kind", "zen3"}, {"float32", "openblas/Haswell"}};
  const std::string text = to_toml(machine);
  EXPECT_EQ(read_host(write(text)), machine);
  const auto with = [&](const std::string& line) {
    return [path = write(std::string(text).replace(text.find("kind = \"zen3\""), 13, line))] { (void)read_host(path); };
  };
  EXPECT_THAT(with("float23 = \"own\""),
              ThrowsMessage<Error>(HasSubstr("there is no key products.float23; did you mean products.float32?")));
  EXPECT_THAT(with("kind = 3"), ThrowsMessage<Error>(HasSubstr("products.kind is not text")));
}

TEST(HostSpec, IsAMachine) {
  const MachineSpec machine = read_machine(write(to_toml(example_host())));
  EXPECT_EQ(machine.host, example_host());
  EXPECT_EQ(machine.num_devices(), std::nullopt);
  EXPECT_EQ(machine.nodes.front().device.formats.at("float32").peak_flops, 1e11);
}

TEST(HostSpec, MistakesAreNamed) {
  std::string text = to_toml(example_host());
  const auto with = [&](const std::string& from, const std::string& to) {
    return write(std::string(text).replace(text.find(from), from.size(), to));
  };
  EXPECT_THAT(
      [&] { (void)read_host(with("read_bandwidth", "reed_bandwidth")); },
      ThrowsMessage<Error>(HasSubstr("there is no key device.reed_bandwidth; did you mean device.read_bandwidth?")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2\n", "")); },
              ThrowsMessage<Error>(HasSubstr("machine.num_cores is missing")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2", "num_cores = -2")); },
              ThrowsMessage<Error>(HasSubstr("machine.num_cores = -2 is below 1 (use 1)")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2", "num_cores = 0")); },
              ThrowsMessage<Error>(HasSubstr("machine.num_cores = 0 is below 1 (use 1)")));
  EXPECT_THAT([&] { (void)read_host(with("float32_flops = ", "float32_flops = nan # ")); },
              ThrowsMessage<Error>(HasSubstr("device.float32_flops = nan is not a finite number")));
  EXPECT_THAT([&] { (void)read_host(with("num_cores = 2", "num_cores = \"two\"")); },
              ThrowsMessage<Error>(HasSubstr("machine.num_cores is not a number")));
  EXPECT_THAT([&] { (void)read_host(with("[16, 16, 16, 8192, ", "[16, 16, 8192, ")); },
              ThrowsMessage<Error>(HasSubstr("operations.matmul.float32[0] is not a list of 7 values")));
  EXPECT_THAT([&] { (void)read_host(with("[2, 4096, 6.000e-07]", "[2, 4096, -1]")); },
              ThrowsMessage<Error>(HasSubstr("collectives.thread.all_reduce[0]: every number is above 0")));
  EXPECT_THAT([] { (void)read_host("nowhere.toml"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'nowhere.toml'"), HasSubstr("echelon bench"))));
}

OperationPoint size(std::int64_t m, std::int64_t n, double amount) {
  return {.m = m, .n = n, .k = 1, .amount = amount};
}

TEST(OperationCurve, GoesThroughItsPointsAndAlongPowersBetweenThem) {
  // Seconds per amount of m^-1/2 n^-1/4.
  OperationCurve curve;
  for (const std::int64_t m : {4, 64})
    for (const std::int64_t n : {16, 256})
      curve.push_back(
          {.m = m,
           .n = n,
           .k = 1,
           .amount = 10,
           .busy_seconds = 10 / std::sqrt(static_cast<double>(m)) / std::sqrt(std::sqrt(static_cast<double>(n)))});
  for (const OperationPoint& point : curve)
    EXPECT_NEAR(interpolated_seconds(curve, point, &OperationPoint::busy_seconds), point.busy_seconds, 1e-12);
  EXPECT_NEAR(interpolated_seconds(curve, size(16, 16, 10), &OperationPoint::busy_seconds), 10.0 / 4 / 2, 1e-12);
  EXPECT_NEAR(interpolated_seconds(curve, size(16, 81, 30), &OperationPoint::busy_seconds), 30.0 / 4 / 3, 1e-12);
  // Outside the measured sizes the rate is that of the outermost.
  EXPECT_NEAR(interpolated_seconds(curve, size(1024, 1024, 30), &OperationPoint::busy_seconds), 30.0 / 8 / 4, 1e-12);
}

TEST(DistancePoint, IsInterpolatedAlongPowersFromCloseBytesOn) {
  const std::vector<DistancePoint> curve = {{4 * close_bytes, 2, 1}, {16 * close_bytes, 6, 3}};
  const auto busy = [&](double distance) {
    return interpolated_seconds(curve, distance * close_bytes, &DistancePoint::busy_seconds);
  };
  EXPECT_EQ(busy(0), 0);
  EXPECT_EQ(busy(1), 0);
  EXPECT_NEAR(busy(2), 1, 1e-12);
  EXPECT_NEAR(busy(4), 2, 1e-12);
  EXPECT_NEAR(busy(8), 4, 1e-12);
  EXPECT_EQ(busy(1e6), 6);
  EXPECT_EQ(interpolated_seconds({}, 1e9, &DistancePoint::shared_seconds), 0);
}

TEST(TracedSteps, AreARangeOrAStep) {
  EXPECT_EQ(parse_traced_steps("steps 3-5"), (StepRange{3, 5}));
  EXPECT_EQ(parse_traced_steps("3-5"), (StepRange{3, 5}));
  EXPECT_EQ(parse_traced_steps("step 4"), (StepRange{4, 4}));
  EXPECT_FALSE(parse_traced_steps("").contains(1));
  for (const char* wrong : {"steps", "steps 0-3", "some", "3-", "-3", "3-x", "3 - 5"})
    EXPECT_THAT([&] { (void)parse_traced_steps(wrong); },
                ThrowsMessage<Error>(AllOf(HasSubstr("metrics.trace"), HasSubstr("(use 'steps "))))
        << wrong;
  EXPECT_THAT([] { (void)parse_traced_steps("5-3"); }, ThrowsMessage<Error>(HasSubstr("(use 'steps 3-5')")));
  EXPECT_THAT([] { (void)parse_traced_steps("steps 1-101"); }, ThrowsMessage<Error>(HasSubstr("(use 'steps 1-100')")));
}

}  // namespace
}  // namespace echelon
