// One rank's communicator of a group by NCCL.
#pragma once

#include "cuda/comm/nccl_mesh.h"

namespace echelon::cuda {

class NcclComm final : public Comm {
 public:
  NcclComm(NcclMesh& mesh, const Group& group, std::int64_t& sent, int rank, int size)
      : mesh_(mesh), group_(group), sent_(sent), rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override;
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override;
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override;
  [[nodiscard]] Pending broadcast(Tensor x, int root) override;
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override;
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override;
  [[nodiscard]] Pending send(Tensor x, int peer) override;
  [[nodiscard]] Pending receive(Tensor x, int peer) override;
  /// Of the ranks' threads, not of what they have enqueued.
  [[nodiscard]] Pending barrier() override;

 private:
  /// Enqueues what `enqueue` gives NCCL, after what the compute stream has.
  Pending start(NcclLink& link, const Signature& signature, NcclMesh::Enqueue enqueue);
  Pending launch(NcclLink& link, const Signature& signature, NcclMesh::Enqueue enqueue);

  NcclMesh& mesh_;
  Group group_;
  std::int64_t& sent_;
  int rank_;
  int size_;
};

}  // namespace echelon::cuda
