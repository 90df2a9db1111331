// Moves tensors in device memory between thread ranks. The ranks' own threads copy and sum tensors in host memory
// (comm/thread/chunks.h). Tensors in device memory are moved by the device itself, when the last rank has arrived. No
// thread reads them or waits for the device: only later work on the device waits.
#pragma once

#include "comm/signature.h"

#include <cstddef>
#include <memory>

namespace echelon {

/// The buffers of one party of an exchange. In place, both are the same address.
struct PartyBuffers {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // Of an all_to_all of unequal parts, by party: what it reads and what it writes.
  const RowPart* in_parts = nullptr;
  const RowPart* out_parts = nullptr;
  const std::int32_t* rows = nullptr;  // of an exchange of columns
};

class DeviceTransport;

/// One exchange between n parties; the object is reused for later ones. Not used for exchanges without elements.
class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;
  /// The party's values are ready when its device has done the work enqueued so far. Called by the party's thread,
  /// which owns the transport.
  virtual void set_buffers(int party, DeviceTransport& transport, const PartyBuffers& buffers) = 0;
  /// Enqueues the exchange when all buffers are set. Called by the thread of the last party.
  virtual void move(DeviceTransport& transport, const Signature& signature) = 0;
  /// Later work on the transport's device waits for the results. Called by every party that does not unwind.
  virtual void await(DeviceTransport& transport) = 0;
  /// Whether the device is done; never blocks.
  [[nodiscard]] virtual bool has_arrived() const = 0;
};

/// A rank's side: its place on the device. Used by the rank's own thread.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  /// Outlives the transport, as an exchange does that other ranks are still in.
  using MakeDeviceExchange = std::unique_ptr<DeviceExchange> (*)(int num_parties);
  [[nodiscard]] virtual MakeDeviceExchange exchange_factory() const = 0;
  /// In a group of one rank: out = in, in the order of what is enqueued.
  virtual void copy(const Tensor& out, const Tensor& in) = 0;
};

}  // namespace echelon
