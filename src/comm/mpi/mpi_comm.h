// One MPI rank's communicator: turns each call into an operation of its group.
#pragma once

#include "comm/mpi/mpi_mesh.h"

namespace echelon {

class MpiComm final : public Comm {
 public:
  MpiComm(MpiMesh& mesh, MpiGroup& group, std::int64_t& sent_bytes)
      : mesh_(mesh), group_(group), sent_bytes_(sent_bytes) {}
  [[nodiscard]] int rank() const override { return group_.place(); }
  [[nodiscard]] int size() const override { return static_cast<int>(group_.ranks().size()); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override;
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override;
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override;
  [[nodiscard]] Pending broadcast(Tensor x, int root) override;
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override;
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override;
  [[nodiscard]] Pending send(Tensor x, int peer) override;
  [[nodiscard]] Pending receive(Tensor x, int peer) override;
  [[nodiscard]] Pending barrier() override;

 private:
  Pending start(std::uint64_t channel, const Signature& signature, const std::byte* in, std::byte* out);

  MpiMesh& mesh_;
  MpiGroup& group_;
  std::int64_t& sent_bytes_;
};

}  // namespace echelon
