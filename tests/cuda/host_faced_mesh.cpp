#include "cuda/host_faced_mesh.h"

#include <stdexcept>
#include <vector>

namespace echelon::cuda {
namespace {

constexpr std::int64_t memory_bytes = std::int64_t{24} << 20;

}  // namespace

/// Tensors of one operation, twice: what comes out on the device is copied to the host when it was waited for.
class HostFacedOperation final : public Pending::Operation {
 public:
  explicit HostFacedOperation(HostFacedMesh& mesh) : mesh_(mesh) { ++mesh_.num_under_way_; }
  ~HostFacedOperation() override {
    inner_ = {};
    if (--mesh_.num_under_way_ == 0) mesh_.num_taken_bytes_ = 0;
  }
  HostFacedOperation(const HostFacedOperation&) = delete;
  HostFacedOperation& operator=(const HostFacedOperation&) = delete;

  /// The tensor on the device, with the host's numbers. One that is within another of the operation is so there too.
  [[nodiscard]] Tensor mirrored(const Tensor& host) {
    Tensor device = host;
    for (const Copy& copy : copies_)
      if (host.data >= copy.host.data && host.data + host.num_bytes() <= copy.host.data + copy.host.num_bytes()) {
        device.data = copy.device.data + (host.data - copy.host.data);
        return device;
      }
    device.data = mesh_.take(host.num_bytes());
    copy(device.data, host.data, host.num_bytes(), cudaMemcpyHostToDevice);
    copies_.push_back({host, device});
    return device;
  }
  void start(Pending inner) { inner_ = std::move(inner); }

  void wait() override {
    inner_.wait();
    bring_back();
  }
  bool poll() override {
    if (!inner_.poll()) return false;
    bring_back();
    return true;
  }

 private:
  struct Copy {
    Tensor host, device;
  };
  void copy(void* out, const void* in, std::int64_t num_bytes, cudaMemcpyKind kind) {
    if (num_bytes > 0)
      check(cudaMemcpyAsync(out, in, static_cast<std::size_t>(num_bytes), kind, mesh_.device_.compute().get()),
            "a copy of a test");
  }
  void bring_back() {
    mesh_.device_.finish();
    for (const Copy& each : copies_)
      copy(each.host.data, each.device.data, each.host.num_bytes(), cudaMemcpyDeviceToHost);
  }

  HostFacedMesh& mesh_;
  std::vector<Copy> copies_;
  Pending inner_;
};

class HostFacedComm final : public Comm {
 public:
  HostFacedComm(HostFacedMesh& mesh, Comm& comm) : mesh_(mesh), comm_(comm) {}
  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int size() const override { return comm_.size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    return with({x}, [&](const auto& t) { return comm_.all_reduce(t[0], op); });
  }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    return with({full, shard}, [&](const auto& t) { return comm_.all_gather(t[0], t[1]); });
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return with({full, shard}, [&](const auto& t) { return comm_.reduce_scatter(t[1], t[0], op); });
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override {
    return with({x}, [&](const auto& t) { return comm_.broadcast(t[0], root); });
  }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    return with({received, sent}, [&](const auto& t) { return comm_.all_to_all(t[0], t[1]); });
  }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return with({exchange.received, exchange.sent}, [&](const auto& t) {
      return comm_.all_to_all_rows({t[0], t[1], exchange.received_parts, exchange.sent_parts});
    });
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override {
    return with({x}, [&](const auto& t) { return comm_.send(t[0], peer); });
  }
  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    return with({x}, [&](const auto& t) { return comm_.receive(t[0], peer); });
  }
  [[nodiscard]] Pending barrier() override { return comm_.barrier(); }

 private:
  template <class Start>
  Pending with(const std::vector<Tensor>& tensors, Start&& start) {
    auto operation = std::make_unique<HostFacedOperation>(mesh_);
    std::vector<Tensor> mirrors;
    for (const Tensor& tensor : tensors) mirrors.push_back(operation->mirrored(tensor));
    operation->start(start(mirrors));
    return Pending(std::move(operation));
  }

  HostFacedMesh& mesh_;
  Comm& comm_;
};

HostFacedMesh::HostFacedMesh(Mesh& mesh, Device& device)
    : Mesh(mesh.shape(), mesh.rank()), mesh_(mesh), device_(device), memory_(device.memory().allocate(memory_bytes)) {}

HostFacedMesh::~HostFacedMesh() { device_.memory().release(memory_, memory_bytes); }

Comm& HostFacedMesh::comm(const Group& group) {
  Comm& inner = mesh_.comm(group);
  auto& comm = comms_[group];
  if (!comm) comm = std::make_unique<HostFacedComm>(*this, inner);
  return *comm;
}

std::byte* HostFacedMesh::take(std::int64_t num_bytes) {
  std::byte* const address = memory_ + num_taken_bytes_;
  num_taken_bytes_ += (num_bytes + 15) / 16 * 16;
  if (num_taken_bytes_ > memory_bytes) throw std::runtime_error("the tests need more memory on the device");
  return address;
}

}  // namespace echelon::cuda
