#include "comm/delayed/delayed_mesh.h"

#include "comm/delayed/delayed_operation.h"

#include <fmt/format.h>

#include <functional>

namespace echelon {
namespace {

constexpr int most_late_polls = 3;

Tensor nothing() { return {nullptr, DType::float32, {0}}; }

}  // namespace

class DelayedMesh::DelayedComm final : public Comm {
 public:
  DelayedComm(DelayedMesh& mesh, Comm& inner, std::string group)
      : mesh_(mesh), inner_(inner), group_(std::move(group)) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    return start("all_reduce", x, x, [&](Tensor, Tensor out) { return inner_.all_reduce(out, op); });
  }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    return start("all_gather", shard, full, [&](Tensor in, Tensor out) { return inner_.all_gather(out, in); });
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return start("reduce_scatter", full, shard,
                 [&](Tensor in, Tensor out) { return inner_.reduce_scatter(out, in, op); });
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override {
    if (rank() == root)
      return start("broadcast", x, nothing(), [&](Tensor in, Tensor) { return inner_.broadcast(in, root); });
    return start("broadcast", nothing(), x, [&](Tensor, Tensor out) { return inner_.broadcast(out, root); });
  }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    return start("all_to_all", sent, received, [&](Tensor in, Tensor out) { return inner_.all_to_all(out, in); });
  }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return start("all_to_all of rows", exchange.sent, exchange.received, [&](Tensor in, Tensor out) {
      return inner_.all_to_all_rows({out, in, exchange.received_parts, exchange.sent_parts, exchange.purpose});
    });
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override {
    return start("send", x, nothing(), [&](Tensor in, Tensor) { return inner_.send(in, peer); });
  }
  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    return start("receive", nothing(), x, [&](Tensor, Tensor out) { return inner_.receive(out, peer); });
  }
  [[nodiscard]] Pending barrier() override {
    return start("barrier", nothing(), nothing(), [&](Tensor, Tensor) { return inner_.barrier(); });
  }

 private:
  Pending start(std::string_view kind, const Tensor& in, const Tensor& out,
                const std::function<Pending(Tensor, Tensor)>& start_inner) {
    const std::string name = fmt::format("{} in group {} on rank {}", kind, group_, mesh_.rank());
    auto operation =
        std::make_unique<DelayedOperation>(name, in, out, static_cast<int>(mesh_.random_() % (most_late_polls + 1)));
    operation->started(
        start_inner({operation->in_copy(), in.dtype, in.sizes}, {operation->out_copy(), out.dtype, out.sizes}));
    return Pending(std::move(operation));
  }

  DelayedMesh& mesh_;
  Comm& inner_;
  std::string group_;
};

DelayedMesh::DelayedMesh(Mesh& inner, std::uint64_t seed)
    : Mesh(inner.shape(), inner.rank()), inner_(inner), random_(seed + static_cast<std::uint64_t>(inner.rank())) {}
DelayedMesh::~DelayedMesh() = default;

Comm& DelayedMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (!comm) comm = std::make_unique<DelayedComm>(*this, inner_.comm(group), name_of(group));
  return *comm;
}

}  // namespace echelon
