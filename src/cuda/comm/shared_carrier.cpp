#include "cuda/comm/shared_carrier.h"

#include "cuda/comm/exchange.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace echelon::cuda {
namespace {

class DeviceShipment final : public Shipment {
 public:
  explicit DeviceShipment(int num_parties) : brought_(static_cast<std::size_t>(num_parties)) {}

  void bring(int party, Carrier& carrier, const Contribution& contribution) override {
    Brought& brought = brought_[static_cast<std::size_t>(party)];
    if (!brought.mark) brought.mark.emplace();
    brought.contribution = contribution;
    device_of(carrier).compute().record(*brought.mark);
  }

  void move(Carrier& carrier, const Signature& signature) override {
    Device& device = device_of(carrier);
    Stream& lane = device.communication();
    for (const Brought& brought : brought_) lane.wait(*brought.mark);
    enqueue_all(signature, device, lane);
    if (!moved_) moved_.emplace();
    lane.record(*moved_);
  }

  void await(Carrier& carrier) override { device_of(carrier).compute().wait(*moved_); }
  [[nodiscard]] bool has_arrived() const override { return moved_->is_reached(); }

 private:
  struct Brought {
    Contribution contribution;
    std::optional<Event> mark;  // made by the party's own thread, when it first comes
  };
  static Device& device_of(Carrier& carrier) { return static_cast<SharedCarrier&>(carrier).device(); }
  [[nodiscard]] int num_parties() const { return static_cast<int>(brought_.size()); }
  void enqueue_all(const Signature& signature, Device& device, Stream& lane) const;

  std::vector<Brought> brought_;  // by party
  std::optional<Event> moved_;
};

void DeviceShipment::enqueue_all(const Signature& signature, Device& device, Stream& lane) const {
  const int n = num_parties();
  const std::int64_t num_bytes = signature.num_elements * size_of(signature.dtype), part_bytes = num_bytes / n;
  Addresses addresses;
  for (std::size_t i = 0; i < brought_.size(); ++i) {
    addresses.in[i] = brought_[i].contribution.in;
    addresses.out[i] = brought_[i].contribution.out;
  }
  Combination combination = {
      .operation = signature.op == ReduceOp::max ? Combination::Operation::max : Combination::Operation::sum,
      .dtype = signature.dtype,
      .num_sources = n,
      .num_parts = 1,
      .num_elements = signature.num_elements,
      .goes_to_all = true};
  switch (signature.kind) {
    case CommKind::all_reduce: return enqueue(combination, addresses, device, lane);
    case CommKind::reduce_scatter:
      combination.num_parts = n;
      combination.num_elements /= n;
      combination.goes_to_all = false;
      return enqueue(combination, addresses, device, lane);
    case CommKind::all_gather:
      return enqueue(Copies{.num_sources = n, .num_targets = n, .num_bytes = part_bytes, .out_stride = part_bytes},
                     addresses, device, lane);
    case CommKind::all_to_all:
      return enqueue(Copies{.num_sources = n,
                            .num_targets = n,
                            .num_bytes = part_bytes,
                            .in_stride = part_bytes,
                            .out_stride = part_bytes},
                     addresses, device, lane);
    case CommKind::broadcast:
      addresses.in[0] = brought_[static_cast<std::size_t>(signature.root)].contribution.in;
      return enqueue(Copies{.num_sources = 1, .num_targets = n, .num_bytes = num_bytes}, addresses, device, lane);
    case CommKind::send:
    case CommKind::receive:  // from party 0 to party 1
      addresses.out[0] = addresses.out[1];
      return enqueue(Copies{.num_sources = 1, .num_targets = 1, .num_bytes = num_bytes}, addresses, device, lane);
    case CommKind::barrier: return;
  }
}

std::unique_ptr<Shipment> make_device_shipment(int num_parties) {
  return std::make_unique<DeviceShipment>(num_parties);
}

}  // namespace

Carrier::MakeShipment SharedCarrier::shipments() const { return make_device_shipment; }

void SharedCarrier::copy(const Tensor& out, const Tensor& in) { device_.copy(out.data, in.data, in.num_bytes()); }

}  // namespace echelon::cuda
