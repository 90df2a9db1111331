// A step on a machine: what can be worked out by hand.
#include "predict/simulate.h"

#include "predict/device_time.h"
#include "predict/network_time.h"
#include "spec/groups.h"

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

MeshShape data_parallel(int num_ranks) {
  Coordinates degrees;
  degrees.fill(1);
  degrees[static_cast<std::size_t>(Axis::dp_shard)] = num_ranks;
  return MeshShape(degrees);
}

TEST(OperationSeconds, AreThoseOfArithmeticOrOfMemory) {
  const DeviceSpec device = slow_machine().nodes.front().device;
  EXPECT_DOUBLE_EQ(operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 100}, device), 20);
  EXPECT_DOUBLE_EQ(operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 400}, device), 40);
}

TEST(CommunicationSeconds, OfARingInsideANodeAndBetweenNodes) {
  const MachineSpec machine = slow_machine();
  const CommRecord two = {.kind = CommKind::all_reduce, .group = shard_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(two, 0, DeviceMap(data_parallel(2), machine)), 40.0 / 10 + 2 * 0.5);  // 2 (n - 1)/n of 40 bytes
  const CommRecord four = {.kind = CommKind::all_gather, .group = shard_group, .group_size = 4, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(four, 0, DeviceMap(data_parallel(4), machine)), 30.0 / 4);  // both cards carry one ring
}

}  // namespace
}  // namespace echelon
