// One process group and its transport. Operations are nonblocking and return a Pending; a group of size 1 is a correct
// no-op (copies where out != in).
//
// Rules for callers: all ranks of a group start the same collectives in the same order with the same sizes; a buffer
// belongs to the transport until the Pending was waited for; every Pending is waited for. Sums are in rank order, in
// float32 for bfloat16, so two runs give the same bits. Empty tensors are legal.
#pragma once

#include "base/error.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace echelon {

enum class ReduceOp : std::uint8_t { sum, max };

/// Thrown by a rank because another one failed. That rank reports the cause, so this is rethrown unchanged.
class PeerAborted final : public Failure {
 public:
  using Failure::Failure;
};

/// An operation in progress. Move-only; default-constructed it is done.
class Pending {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void wait() = 0;  // may throw Failure: a peer aborted, or comm.timeout_seconds passed
    virtual bool poll() = 0;  // makes progress without blocking; true when done
  };

  Pending() = default;
  explicit Pending(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Blocks until the results may be read and the buffers reused. Throws Failure if a peer aborted.
  void wait() {
    if (operation_) operation_->wait();
    operation_.reset();
  }
  /// True when done; advances the operation without blocking.
  [[nodiscard]] bool poll() {
    if (operation_ && operation_->poll()) operation_.reset();
    return !operation_;
  }

 private:
  std::unique_ptr<Operation> operation_;
};

/// Rows of a matrix: [first, first + count).
struct RowPart {
  std::int64_t first = 0, count = 0;
  bool operator==(const RowPart&) const = default;
};

/// What an exchange of rows is for. Only drawings read it.
enum class RowPurpose : std::uint8_t { other, dispatch, combine };
[[nodiscard]] constexpr std::string_view name_of(RowPurpose purpose) {
  switch (purpose) {
    case RowPurpose::other: return "";
    case RowPurpose::dispatch: return "dispatch";
    case RowPurpose::combine: return "combine";
  }
  return "";
}

/// What a rank exchanges with the others: rows of matrices with equally many columns. By rank of the group, the rows of
/// `sent` that go to it, and the rows of `received` that come from it. Both of a pair of ranks give the same count.
struct RowExchange {
  Tensor received, sent;
  std::span<const RowPart> received_parts, sent_parts;  // belong to the transport as the tensors do
  RowPurpose purpose = RowPurpose::other;
};

/// An exchange of n ranks in one pass over memory, where they read one another's: each gives its rows for a part of the
/// columns of all rows, or the reverse. Of all ranks' N rows each, row r of rank i is row i N + r.
struct ColumnExchange {
  // Gathers rows: sent [N, n, W] and received [M, W], whose row m is row `rows[m]` of all. Else sent [M, W] and
  // received [N, n, W], whose row r on rank i is row `rows[i N + r]` of what each sends. A row -1 is zeros.
  Tensor received, sent;
  std::span<const std::int32_t> rows;  // belongs to the transport as the tensors do
  bool gathers_rows = true;
};

class Comm {
 public:
  virtual ~Comm() = default;
  [[nodiscard]] virtual int rank() const = 0;  // within the group
  [[nodiscard]] virtual int size() const = 0;

  /// In place over all ranks.
  [[nodiscard]] virtual Pending all_reduce(Tensor x, ReduceOp op) = 0;
  /// full = concatenation of the ranks' shards, which are equally long. `shard` may be this rank's part of `full`.
  [[nodiscard]] virtual Pending all_gather(Tensor full, Tensor shard) = 0;
  /// shard = this rank's part of the sum of `full` over the ranks. `shard` may be this rank's part of `full`, whose
  /// other parts keep their values.
  [[nodiscard]] virtual Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) = 0;
  [[nodiscard]] virtual Pending broadcast(Tensor x, int root) = 0;
  /// Part i of `sent` goes to rank i; part i of `received` comes from rank i. Equal parts; the two do not overlap.
  [[nodiscard]] virtual Pending all_to_all(Tensor received, Tensor sent) = 0;
  /// The same with parts of unequal length, which every rank knows beforehand. Rows of `received` that are in no part
  /// keep their values.
  [[nodiscard]] virtual Pending all_to_all_rows(const RowExchange& exchange) = 0;
  /// Sends the bytes of an all_to_all of the tensor [N, n, W]. Only where can_exchange_columns().
  [[nodiscard]] virtual Pending exchange_columns(const ColumnExchange& /*exchange*/) {
    throw Failure("these ranks cannot exchange columns");
  }
  [[nodiscard]] virtual bool can_exchange_columns() const { return false; }
  /// Matched in order per (source, destination). Nothing is buffered: a send is done only when the peer has received
  /// it.
  [[nodiscard]] virtual Pending send(Tensor x, int peer) = 0;
  [[nodiscard]] virtual Pending receive(Tensor x, int peer) = 0;
  [[nodiscard]] virtual Pending barrier() = 0;
};

}  // namespace echelon
