// Rates that contradict each other, by hand.
#include "spec/machine/probe_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

HostSpec host(double core_peak, double device_peak) {
  HostSpec host;
  host.core = {.float32_flops = core_peak, .float64_flops = core_peak / 2};
  host.device = {.float32_flops = device_peak, .float64_flops = device_peak / 2};
  return host;
}

// A machine file whose peak is below what a matmul reached is an error of the probe, with both rates.
TEST(ProbeErrors, AMatmulFasterThanThePeakIsOne) {
  HostSpec machine = host(44e9, 88e9);
  EXPECT_THAT(probe_errors(machine), IsEmpty());
  machine.core.sgemm_flops = 69e9;
  machine.device.sgemm_flops = 80e9;
  EXPECT_THAT(probe_errors(machine),
              ElementsAre(AllOf(HasSubstr("a float32 matmul on one core reaches 69.0 GFLOP/s"), HasSubstr("peak 44.0"),
                                HasSubstr("echelon bench --output FILE"))));
}

TEST(ProbeErrors, AllowTwoPercent) {
  HostSpec machine = host(100e9, 200e9);
  machine.core.sgemm_flops = 101.9e9;
  EXPECT_THAT(probe_errors(machine), IsEmpty());
  machine.core.sgemm_flops = 102.1e9;
  EXPECT_EQ(probe_errors(machine).size(), 1U);
}

// 2 flops in the given seconds.
OperationPoint point(double core, double busy, double shared) {
  return {.m = 1, .n = 1, .k = 1, .amount = 2, .core_seconds = core, .busy_seconds = busy, .shared_seconds = shared};
}

TEST(ProbeErrors, ComeFromEveryMeasuredSizeAndFormat) {
  HostSpec machine = host(1, 2);
  machine.operations["matmul"]["float32"] = {point(2.1, 2.1, 1.1), point(2.1, 1.8, 1.1)};
  EXPECT_THAT(probe_errors(machine), ElementsAre(HasSubstr("a float32 matmul on one core")));
  machine.operations["matmul"]["float32"] = {point(2.1, 2.1, 0.9)};
  EXPECT_THAT(probe_errors(machine), ElementsAre(HasSubstr("a float32 matmul on all cores")));
  machine.operations.clear();
  machine.operations["matmul"]["float64"] = {point(2.1, 4.1, 2.1)};  // float64 has half the peak
  EXPECT_THAT(probe_errors(machine), ElementsAre(HasSubstr("a float64 matmul on one core")));
  machine.operations.clear();
  machine.operations["gelu"]["float32"] = {point(0.1, 0.1, 0.1)};  // its amount is bytes
  EXPECT_THAT(probe_errors(machine), IsEmpty());
}

// A CPU without bfloat16's instruction has the peak of float32 for it.
TEST(ProbeErrors, AnUnknownPeakSaysNothing) {
  HostSpec machine = host(0, 0);
  machine.core.sgemm_flops = 1e9;
  machine.operations["matmul"]["bfloat16"] = {point(1, 1, 1)};
  EXPECT_THAT(probe_errors(machine), IsEmpty());
}

TEST(ProbeErrors, AnMfuAboveOneHundredPercentIsOne) {
  EXPECT_FALSE(mfu_error(101e9, 100e9));
  EXPECT_FALSE(mfu_error(101e9, 0));
  ASSERT_TRUE(mfu_error(133e9, 100e9));
  EXPECT_THAT(*mfu_error(133e9, 100e9),
              AllOf(HasSubstr("mfu is 133.0 %"), HasSubstr("0.133 TFLOP/s"), HasSubstr("measured peak is 0.1,")));
}

TEST(ProbeErrors, AFloorAboveTheMeasuredTimeIsOne) {
  EXPECT_FALSE(floor_error("matmul", 1.01, 1));
  EXPECT_FALSE(floor_error("matmul", 1, 0));
  ASSERT_TRUE(floor_error("matmul", 1.33, 1));
  EXPECT_THAT(*floor_error("matmul", 1.33, 1), HasSubstr("the floor of matmul is 1330.000 ms, but it takes 1000.000"));
  EXPECT_FALSE(memory_floor_error(1.01, 1));
  EXPECT_THAT(memory_floor_error(1.33, 1).value_or(""), HasSubstr("caches"));
}

}  // namespace
}  // namespace echelon
