#include "cuda/comm/shared_gpu_transport.h"

#include "cuda/comm/exchange.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace echelon::cuda {
namespace {

class GpuExchange final : public DeviceExchange {
 public:
  explicit GpuExchange(int num_parties) : parties_(static_cast<std::size_t>(num_parties)) {}

  void set_buffers(int party, DeviceTransport& transport, const PartyBuffers& buffers) override {
    Party& party_state = parties_[static_cast<std::size_t>(party)];
    if (!party_state.mark) party_state.mark.emplace();
    party_state.buffers = buffers;
    device_of(transport).compute().record(*party_state.mark);
  }

  void move(DeviceTransport& transport, const Signature& signature) override {
    Device& device = device_of(transport);
    Stream& lane = device.communication();
    for (const Party& party_state : parties_) lane.wait(*party_state.mark);
    enqueue_all(signature, device, lane);
    if (!moved_) moved_.emplace();
    lane.record(*moved_);
  }

  void await(DeviceTransport& transport) override { device_of(transport).compute().wait(*moved_); }
  [[nodiscard]] bool has_arrived() const override { return moved_->is_reached(); }

 private:
  struct Party {
    PartyBuffers buffers;
    std::optional<Event> mark;  // made by the party's own thread, when it first comes
  };
  static Device& device_of(DeviceTransport& transport) { return static_cast<SharedGpuTransport&>(transport).device(); }
  [[nodiscard]] int num_parties() const { return static_cast<int>(parties_.size()); }
  void enqueue_all(const Signature& signature, Device& device, Stream& lane) const;
  void enqueue_rows(const Signature& signature, Device& device, Stream& lane) const;

  std::vector<Party> parties_;  // by party
  std::optional<Event> moved_;
};

// One copy for each pair of ranks with rows.
void GpuExchange::enqueue_rows(const Signature& signature, Device& device, Stream& lane) const {
  const std::int64_t row_bytes = signature.num_elements * size_of(signature.dtype);
  for (std::size_t from = 0; from < parties_.size(); ++from)
    for (std::size_t to = 0; to < parties_.size(); ++to) {
      const PartyBuffers &source = parties_[from].buffers, &target = parties_[to].buffers;
      const RowPart &sent = source.in_parts[to], &received = target.out_parts[from];
      if (sent.count == 0 || row_bytes == 0) continue;
      Addresses addresses;
      addresses.in[0] = source.in + sent.first * row_bytes;
      addresses.out[0] = target.out + received.first * row_bytes;
      enqueue(Copies{.num_bytes = sent.count * row_bytes}, addresses, device, lane);
    }
}

void GpuExchange::enqueue_all(const Signature& signature, Device& device, Stream& lane) const {
  if (signature.has_parts) return enqueue_rows(signature, device, lane);
  const int n = num_parties();
  const std::int64_t num_bytes = signature.num_elements * size_of(signature.dtype), part_bytes = num_bytes / n;
  Addresses addresses;
  for (std::size_t i = 0; i < parties_.size(); ++i) {
    addresses.in[i] = parties_[i].buffers.in;
    addresses.out[i] = parties_[i].buffers.out;
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
      addresses.in[0] = parties_[static_cast<std::size_t>(signature.root)].buffers.in;
      return enqueue(Copies{.num_sources = 1, .num_targets = n, .num_bytes = num_bytes}, addresses, device, lane);
    case CommKind::send:
    case CommKind::receive:  // from party 0 to party 1
      addresses.out[0] = addresses.out[1];
      return enqueue(Copies{.num_sources = 1, .num_targets = 1, .num_bytes = num_bytes}, addresses, device, lane);
    case CommKind::barrier: return;
  }
}

std::unique_ptr<DeviceExchange> make_gpu_exchange(int num_parties) {
  return std::make_unique<GpuExchange>(num_parties);
}

}  // namespace

DeviceTransport::MakeDeviceExchange SharedGpuTransport::exchange_factory() const { return make_gpu_exchange; }

void SharedGpuTransport::copy(const Tensor& out, const Tensor& in) { device_.copy(out.data, in.data, in.num_bytes()); }

}  // namespace echelon::cuda
