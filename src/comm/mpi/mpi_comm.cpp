#include "comm/mpi/mpi_comm.h"

#include "comm/arguments.h"
#include "comm/mpi/mpi_operation.h"

namespace echelon {
namespace {

constexpr std::uint64_t collectives = 0;

}  // namespace

Pending MpiComm::all_reduce(Tensor x, ReduceOp op) {
  return start(collectives,
               {.kind = CommKind::all_reduce, .op = op, .dtype = x.dtype, .num_elements = x.num_elements()}, x.data,
               x.data);
}

Pending MpiComm::all_gather(Tensor full, Tensor shard) {
  check_all_gather(*this, full, shard);
  return start(collectives, {.kind = CommKind::all_gather, .dtype = full.dtype, .num_elements = full.num_elements()},
               shard.data, full.data);
}

Pending MpiComm::reduce_scatter(Tensor shard, Tensor full, ReduceOp op) {
  check_reduce_scatter(*this, shard, full);
  return start(collectives,
               {.kind = CommKind::reduce_scatter, .op = op, .dtype = full.dtype, .num_elements = full.num_elements()},
               full.data, shard.data);
}

Pending MpiComm::broadcast(Tensor x, int root) {
  check_root(*this, root);
  return start(collectives,
               {.kind = CommKind::broadcast, .dtype = x.dtype, .num_elements = x.num_elements(), .root = root}, x.data,
               x.data);
}

Pending MpiComm::all_to_all(Tensor received, Tensor sent) {
  check_all_to_all(*this, received, sent);
  return start(collectives, {.kind = CommKind::all_to_all, .dtype = sent.dtype, .num_elements = sent.num_elements()},
               sent.data, received.data);
}

Pending MpiComm::all_to_all_rows(const RowExchange& exchange) {
  check_all_to_all_rows(*this, exchange);
  const auto turn = mesh_.take_turn();
  auto operation = std::make_unique<MpiOperation>(mesh_, group_, collectives,
                                                  Signature{.kind = CommKind::all_to_all,
                                                            .dtype = exchange.sent.dtype,
                                                            .num_elements = exchange.sent.size(1),
                                                            .has_parts = true},
                                                  sent_bytes_);
  operation->start({.in = exchange.sent.data,
                    .out = exchange.received.data,
                    .in_parts = exchange.sent_parts.data(),
                    .out_parts = exchange.received_parts.data()});
  return Pending(std::move(operation));
}

Pending MpiComm::send(Tensor x, int peer) {
  check_peer(*this, peer);
  const Signature signature = {.kind = CommKind::send, .dtype = x.dtype, .num_elements = x.num_elements()};
  return start(MpiGroup::channel_of(rank(), peer), signature, x.data, nullptr);
}

Pending MpiComm::receive(Tensor x, int peer) {
  check_peer(*this, peer);
  const Signature signature = {.kind = CommKind::send, .dtype = x.dtype, .num_elements = x.num_elements()};
  return start(MpiGroup::channel_of(peer, rank()), signature, nullptr, x.data);
}

Pending MpiComm::barrier() { return start(collectives, {.kind = CommKind::barrier}, nullptr, nullptr); }

Pending MpiComm::start(std::uint64_t channel, const Signature& signature, const std::byte* in, std::byte* out) {
  const auto turn = mesh_.take_turn();
  auto operation = std::make_unique<MpiOperation>(mesh_, group_, channel, signature, sent_bytes_);
  operation->start({.in = in, .out = out});
  return Pending(std::move(operation));
}

}  // namespace echelon
