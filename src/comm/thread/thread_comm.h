// One thread rank's communicator: turns each operation into this rank's side of an exchange.
#pragma once

#include "comm/thread/thread_mesh.h"

namespace echelon {

class ThreadComm final : public Comm {
 public:
  ThreadComm(ThreadMesh& mesh, ThreadGroup& group, std::int64_t& sent, int rank, int size)
      : mesh_(mesh),
        group_(group),
        sent_(sent),
        rank_(rank),
        size_(size),
        to_(static_cast<std::size_t>(size)),
        from_(static_cast<std::size_t>(size)) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override;
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override;
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override;
  [[nodiscard]] Pending broadcast(Tensor x, int root) override;
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override;
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override;
  [[nodiscard]] Pending exchange_columns(const ColumnExchange& exchange) override;
  [[nodiscard]] bool can_exchange_columns() const override { return mesh_.transport() == nullptr; }
  [[nodiscard]] Pending send(Tensor x, int peer) override;
  [[nodiscard]] Pending receive(Tensor x, int peer) override;
  [[nodiscard]] Pending barrier() override;

 private:
  Pending start(Rendezvous& rendezvous, int party, const Signature& signature, const PartyBuffers& buffers);
  Pending start_collective(const Signature& signature, const std::byte* in, std::byte* out) {
    return start(group_.collectives(), rank_, signature, {.in = in, .out = out});
  }

  ThreadMesh& mesh_;
  ThreadGroup& group_;
  std::int64_t& sent_;
  int rank_;
  int size_;
  std::vector<Rendezvous*> to_, from_;  // by peer, once used
};

}  // namespace echelon
