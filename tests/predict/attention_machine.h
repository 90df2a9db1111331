// A machine for tests of what attention takes and what hides its communication.
#pragma once

#include "spec/machine/machine_spec.h"

namespace echelon {

/// Nodes of eight devices. Attention alone takes time: everything else is a million times as fast, or costs nothing.
inline MachineSpec attention_machine() {
  NodeSpec node;
  node.num_devices = 8;
  node.device = {
      .name = "attention",
      .memory_bytes = std::int64_t{1} << 40,
      .memory_bandwidth = 1e21,
      .formats = {{"float32", {.peak_flops = 1e18, .attention_efficiency = 1e-6}}},
  };
  node.device.vector_flops = 1e18;
  node.link = {.bandwidth = 1e21};
  node.num_nics = 8;
  node.nic_bandwidth = 1e21;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

}  // namespace echelon
