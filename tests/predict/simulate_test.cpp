// A step on a machine: what can be worked out by hand.
#include "predict/simulate.h"

#include "predict/device_time.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Products at 100 flops a second, memory at 10 bytes a second, links of 10 bytes a second inside nodes of two devices and of 4 between them.
MachineSpec slow_machine() {
  NodeSpec node;
  node.num_devices = 2;
  node.device = {.name = "slow", .memory_bytes = 1000, .memory_bandwidth = 10, .formats = {{"float32", {.peak_flops = 100}}}};
  node.link = {.bandwidth = 10, .latency_seconds = 0.5};
  node.num_nics = 2;
  node.nic_bandwidth = 2;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

TEST(OperationSeconds, AreThoseOfArithmeticOrOfMemory) {
  const DeviceSpec device = slow_machine().nodes.front().device;
  EXPECT_DOUBLE_EQ(operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 100}, device), 20);
  EXPECT_DOUBLE_EQ(operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 400}, device), 40);
}

}  // namespace
}  // namespace echelon
