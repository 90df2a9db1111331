// The communicator of a group of one rank: sums are the inputs, gathers are copies, nothing is sent.
#pragma once

#include "comm/comm.h"

#include <functional>

namespace echelon {

class SoloComm final : public Comm {
 public:
  /// out = in, of equal sizes and not the same place.
  using Copy = std::function<void(const Tensor& out, const Tensor& in)>;
  static void copy_in_host_memory(const Tensor& out, const Tensor& in);

  explicit SoloComm(Copy copy = copy_in_host_memory) : copy_(std::move(copy)) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override;
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override;
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override;
  [[nodiscard]] Pending broadcast(Tensor x, int root) override;
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override;
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override;
  [[nodiscard]] Pending send(Tensor x, int peer) override;     // throws Error: there is no peer
  [[nodiscard]] Pending receive(Tensor x, int peer) override;  // likewise
  [[nodiscard]] Pending barrier() override;

 private:
  Pending copied(const Tensor& out, const Tensor& in);

  Copy copy_;
};

}  // namespace echelon
