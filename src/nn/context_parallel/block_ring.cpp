#include "nn/context_parallel/block_ring.h"

#include "nn/context_parallel/row_transfers.h"
#include "spec/groups.h"

namespace echelon {
Group ring_group(const KeyExchange& exchange) {
  return exchange.head_ranks > 1 ? cp_ring_group(exchange.head_ranks) : cp_group;
}

BlockRing::BlockRing(Context& context, const KeyExchange& exchange, const TravellingRows& rows)
    : context_(context), comm_(context.mesh.comm(ring_group(exchange))), rows_(rows) {}

BlockRing::Hop BlockRing::pass(const KeyBlock& sent, const KeyBlock& received, int distance, TransferOf transfer_of,
                               std::vector<Pending>& sends) {
  const int next = (comm_.rank() + 1) % comm_.size(), before = (comm_.rank() + comm_.size() - 1) % comm_.size();
  Hop hop;
  const std::span<const KeyTransfers> rows = rows_.transfers;
  context_.ops.publish();
  context_.mesh.together([&] {
    for (const std::size_t i : {0, 1}) {
      if (rows.empty()) {
        sends.push_back(comm_.send(sent[i], next));
        hop.receives_.push_back(comm_.receive(received[i], before));
      }
      for (std::size_t b = 0; b < rows.size(); ++b)
        start_transfers(comm_, {sent[i], received[i], next, before}, static_cast<std::int64_t>(b),
                        transfer_of(rows[b], distance), {sends, hop.receives_});
    }
  });
  return hop;
}

BlockRing::Hop BlockRing::pass_keys(const KeyBlock& sent, const KeyBlock& received, int distance) {
  wait_for(key_sends_);
  return pass(
      sent, received, distance,
      [](const KeyTransfers& rows, int from) -> const RowTransfer& { return rows.keys(from); },
      distance == 0 ? own_sends_ : key_sends_);
}

BlockRing::Hop BlockRing::pass_gradients(const KeyBlock& sent, const KeyBlock& received, int distance) {
  wait_for(gradient_sends_);
  if (rows_.may_be_skipped)
    for (const Tensor& x : received) context_.ops.fill(x, 0);
  return pass(
      sent, received, distance,
      [](const KeyTransfers& rows, int from) -> const RowTransfer& { return rows.gradients(from); }, gradient_sends_);
}

void BlockRing::finish() {
  for (std::vector<Pending>* sends : {&own_sends_, &key_sends_, &gradient_sends_}) wait_for(*sends);
}

KeyBlock BlockRing::take_keys(const KeyBlock& block) {
  KeyBlock taken;
  for (const std::size_t i : {0, 1}) {
    taken[i] = context_.workspace.take(block[i].dtype, block[i].sizes);
    if (rows_.may_be_skipped) context_.ops.fill(taken[i], 0);
  }
  return taken;
}

}  // namespace echelon
