// A mesh and a communicator that leave everything to other ones. Wrappers override what they change.
#pragma once

#include "comm/mesh.h"
#include "engine/layout_run.h"

#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace echelon {

class ForwardingComm : public Comm {
 public:
  explicit ForwardingComm(Comm& inner) : inner_(inner) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override { return inner_.all_reduce(x, op); }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override { return inner_.all_gather(full, shard); }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return inner_.reduce_scatter(shard, full, op);
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override { return inner_.broadcast(x, root); }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override { return inner_.all_to_all(received, sent); }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return inner_.all_to_all_rows(exchange);
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override { return inner_.send(x, peer); }
  [[nodiscard]] Pending receive(Tensor x, int peer) override { return inner_.receive(x, peer); }
  [[nodiscard]] Pending barrier() override { return inner_.barrier(); }

 protected:
  [[nodiscard]] Comm& inner() { return inner_; }

 private:
  Comm& inner_;
};

class ForwardingMesh : public Mesh {
 public:
  explicit ForwardingMesh(Mesh& inner) : Mesh(inner.shape(), inner.rank()), inner_(inner) {}
  [[nodiscard]] Comm& comm(const Group& group) override { return inner_.comm(group); }
  void together(const std::function<void()>& start) override { inner_.together(start); }
  void poll() override { inner_.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return inner_.sent_bytes(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 protected:
  [[nodiscard]] Mesh& inner() { return inner_; }

 private:
  Mesh& inner_;
};

/// With another communicator for one group.
class MeshWithComm final : public ForwardingMesh {
 public:
  MeshWithComm(Mesh& inner, const Group& group, std::unique_ptr<Comm> comm)
      : ForwardingMesh(inner), group_(group), comm_(std::move(comm)) {}
  [[nodiscard]] Comm& comm(const Group& group) override { return group == group_ ? *comm_ : inner().comm(group); }

 private:
  Group group_;
  std::unique_ptr<Comm> comm_;
};

/// A rank outside of another one, with another communicator for one group.
class RankWithComm final : public RankInterposer {
 public:
  using Wrap = std::function<std::unique_ptr<Comm>(Comm&)>;
  RankWithComm(std::unique_ptr<RankInterposer> inner, const Group& group, const Wrap& wrap)
      : inner_(std::move(inner)), mesh_(inner_->mesh(), group, wrap(inner_->mesh().comm(group))) {}
  [[nodiscard]] Ops& ops() override { return inner_->ops(); }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  std::unique_ptr<RankInterposer> inner_;
  MeshWithComm mesh_;
};

}  // namespace echelon
