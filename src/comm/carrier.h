// Who moves the numbers of thread ranks that lie in the memory of a device. Numbers in the host's memory are copied and
// summed by the ranks' own threads (comm/thread/chunks.h); those of a device it moves itself, told so by the last rank
// that arrives. No thread touches them, and none waits for the device: only what is enqueued there afterwards waits.
#pragma once

#include "comm/signature.h"

#include <cstddef>
#include <memory>

namespace echelon {

/// What one party of an exchange brings. In place, both are the same address.
struct Contribution {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

class Carrier;

/// What is moved in one exchange between n parties; used again for later ones. Not told of exchanges of nothing.
class Shipment {
 public:
  virtual ~Shipment() = default;
  /// The party's numbers are those which its device has when it has done what was enqueued so far. Called by the
  /// party's thread, whose carrier this is.
  virtual void bring(int party, Carrier& carrier, const Contribution& contribution) = 0;
  /// All have brought theirs: enqueues the exchange. Called by the last one's thread.
  virtual void move(Carrier& carrier, const Signature& signature) = 0;
  /// What the carrier's device is given from now on finds the results. Called by every party that is not about to
  /// unwind.
  virtual void await(Carrier& carrier) = 0;
  /// Whether the device is done; never blocks.
  [[nodiscard]] virtual bool has_arrived() const = 0;
};

/// A rank's side: its place on the device. Used by the rank's own thread.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Outlives the carrier, as an exchange does that other ranks are still in.
  using MakeShipment = std::unique_ptr<Shipment> (*)(int num_parties);
  [[nodiscard]] virtual MakeShipment shipments() const = 0;
  /// In a group of one rank: out = in, in the order of what is enqueued.
  virtual void copy(const Tensor& out, const Tensor& in) = 0;
};

}  // namespace echelon
