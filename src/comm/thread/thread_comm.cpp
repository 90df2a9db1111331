#include "comm/thread/thread_comm.h"

#include "comm/arguments.h"
#include "comm/thread/thread_operation.h"

namespace echelon {

Pending ThreadComm::all_reduce(Tensor x, ReduceOp op) {
  return start_collective({.kind = CommKind::all_reduce, .op = op, .dtype = x.dtype, .num_elements = x.num_elements()},
                          x.data, x.data);
}

Pending ThreadComm::all_gather(Tensor full, Tensor shard) {
  check_all_gather(*this, full, shard);
  return start_collective({.kind = CommKind::all_gather, .dtype = full.dtype, .num_elements = full.num_elements()},
                          shard.data, full.data);
}

Pending ThreadComm::reduce_scatter(Tensor shard, Tensor full, ReduceOp op) {
  check_reduce_scatter(*this, shard, full);
  return start_collective(
      {.kind = CommKind::reduce_scatter, .op = op, .dtype = full.dtype, .num_elements = full.num_elements()}, full.data,
      shard.data);
}

Pending ThreadComm::broadcast(Tensor x, int root) {
  check_root(*this, root);
  return start_collective(
      {.kind = CommKind::broadcast, .dtype = x.dtype, .num_elements = x.num_elements(), .root = root}, x.data, x.data);
}

Pending ThreadComm::all_to_all(Tensor received, Tensor sent) {
  check_all_to_all(*this, received, sent);
  return start_collective({.kind = CommKind::all_to_all, .dtype = sent.dtype, .num_elements = sent.num_elements()},
                          sent.data, received.data);
}

Pending ThreadComm::all_to_all_rows(const RowExchange& exchange) {
  check_all_to_all_rows(*this, exchange);
  return start(group_.collectives(), rank_,
               {.kind = CommKind::all_to_all,
                .dtype = exchange.sent.dtype,
                .num_elements = exchange.sent.size(1),
                .has_parts = true},
               {.in = exchange.sent.data,
                .out = exchange.received.data,
                .in_parts = exchange.sent_parts.data(),
                .out_parts = exchange.received_parts.data()});
}

Pending ThreadComm::exchange_columns(const ColumnExchange& exchange) {
  check_exchange_columns(*this, exchange);
  const auto& [received, sent, rows, gathers_rows] = exchange;
  const Tensor &own = gathers_rows ? sent : received, &all = gathers_rows ? received : sent;
  return start(group_.collectives(), rank_,
               {.kind = CommKind::all_to_all,
                .dtype = sent.dtype,
                .num_elements = own.num_elements(),
                .num_columns = all.size(1),
                .num_rows = gathers_rows ? all.size(0) : -all.size(0)},
               {.in = sent.data, .out = received.data, .rows = rows.data()});
}

Pending ThreadComm::send(Tensor x, int peer) {
  check_peer(*this, peer);
  auto& transfers = to_[static_cast<std::size_t>(peer)];
  if (transfers == nullptr) transfers = &group_.transfers(rank_, peer);
  return start(*transfers, 0, {.kind = CommKind::send, .dtype = x.dtype, .num_elements = x.num_elements()},
               {.in = x.data});
}

Pending ThreadComm::receive(Tensor x, int peer) {
  check_peer(*this, peer);
  auto& transfers = from_[static_cast<std::size_t>(peer)];
  if (transfers == nullptr) transfers = &group_.transfers(peer, rank_);
  return start(*transfers, 1, {.kind = CommKind::send, .dtype = x.dtype, .num_elements = x.num_elements()},
               {.out = x.data});
}

Pending ThreadComm::barrier() { return start_collective({.kind = CommKind::barrier}, nullptr, nullptr); }

Pending ThreadComm::start(Rendezvous& rendezvous, int party, const Signature& signature, const PartyBuffers& buffers) {
  return Pending(std::make_unique<ThreadOperation>(mesh_, Membership{rendezvous, party, sent_}, signature, buffers));
}

}  // namespace echelon
