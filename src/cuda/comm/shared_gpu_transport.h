// Thread ranks that share one GPU: what they exchange is moved by kernels of that GPU. So every layout runs on a single
// one, which is for tests and for a first look; it is no faster than one rank.
//
// Each rank marks its compute stream when it starts an operation. The last one to come lets its communication stream
// wait for all marks, enqueues the exchange and marks its end, for which the others' compute streams wait when they
// wait for the operation. So a rank's thread waits for the other ranks' threads alone, and the device sees all
// dependences in time. Sums are in rank order: the bits are those of ranks in the host's memory.
#pragma once

#include "comm/device_transport.h"
#include "cuda/device/device.h"

namespace echelon::cuda {

class SharedGpuTransport final : public DeviceTransport {
 public:
  /// `device` must outlive it, and is the same GPU for all ranks.
  explicit SharedGpuTransport(Device& device) : device_(device) {}
  [[nodiscard]] MakeDeviceExchange exchange_factory() const override;
  void copy(const Tensor& out, const Tensor& in) override;
  [[nodiscard]] Device& device() { return device_; }

 private:
  Device& device_;
};

}  // namespace echelon::cuda
