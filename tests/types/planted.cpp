#include "types/planted.h"

#include "nn/head_split.h"
#include "ops/forwarding_ops.h"
#include "types/rank_axes.h"

#include <map>

namespace echelon::testing {
namespace {

class PlantedOps final : public ForwardingOps {
 public:
  PlantedOps(Ops& inner, PlantInOps plant) : ForwardingOps(inner), plant_(std::move(plant)) {}
  void perform(const Operation& operation) override {
    StoredOperation changed = stored(operation);
    if (plant_(changed)) echelon::perform(inner(), changed);
  }

 private:
  PlantInOps plant_;
};

class PlantedComm final : public Comm {
 public:
  PlantedComm(Mesh& inner, const Group& group, const Plant& plant) : inner_(inner), group_(group), plant_(plant) {}
  [[nodiscard]] int rank() const override { return comm().rank(); }
  [[nodiscard]] int size() const override { return comm().size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    return each({CommKind::all_reduce, group_, x, op}, [&](Comm& comm) { return comm.all_reduce(x, op); });
  }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    return each({CommKind::all_gather, group_, full},
                [&](Comm& comm) { return comm.all_gather(full, plant_.shard(full, shard)); });
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return each({CommKind::reduce_scatter, group_, full, op},
                [&](Comm& comm) { return comm.reduce_scatter(shard, full, op); });
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override { return comm().broadcast(x, root); }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override { return comm().all_to_all(received, sent); }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return each({CommKind::all_to_all, group_, exchange.sent},
                [&](Comm& comm) { return comm.all_to_all_rows(exchange); });
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override { return comm().send(x, peer); }
  [[nodiscard]] Pending receive(Tensor x, int peer) override { return comm().receive(x, peer); }
  [[nodiscard]] Pending barrier() override { return comm().barrier(); }

 private:
  [[nodiscard]] Comm& comm() const { return inner_.comm(group_); }
  template <class Start>
  Pending each(const Collective& collective, Start start) {
    for (const Group& group : plant_.mesh(collective)) start(inner_.comm(group)).wait();
    return {};
  }

  Mesh& inner_;
  Group group_;
  const Plant& plant_;
};

class PlantedMesh final : public Mesh {
 public:
  PlantedMesh(Mesh& inner, Plant plant) : Mesh(inner.shape(), inner.rank()), inner_(inner), plant_(std::move(plant)) {}
  [[nodiscard]] Comm& comm(const Group& group) override {
    auto& comm = comms_[group];
    if (!comm) comm = std::make_unique<PlantedComm>(inner_, group, plant_);
    return *comm;
  }
  void poll() override { inner_.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return inner_.sent_bytes(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  Mesh& inner_;
  Plant plant_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

class Planted final : public RankInterposer {
 public:
  Planted(Ops& ops, Mesh& mesh, const Plant& plant) : ops_(ops, plant.ops), mesh_(mesh, plant), plant_(plant.run) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  void attach(RankRun& run) override { plant_(run); }

 private:
  PlantedOps ops_;
  PlantedMesh mesh_;
  PlantInRun plant_;
};

}  // namespace

Interpose interpose(const Plant& plant) {
  return [plant](Ops& ops, Mesh& mesh) { return std::make_unique<Planted>(ops, mesh, plant); };
}

std::string fault_of(const RunConfig& config, const Plant& plant) {
  const Blueprint blueprint(config);
  for (const int rank :
       representative_ranks(blueprint.mesh(), kv_replicas(config.model, blueprint.mesh().degree(Axis::tp)),
                            key_exchange(config.parallelism).head_ranks, num_expert_ranks(config.parallelism)))
    try {
      check_layout_types(blueprint, rank, interpose(plant));
    } catch (const Error& error) {
      return error.what();
    }
  return {};
}

}  // namespace echelon::testing
