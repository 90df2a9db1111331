#include "nn/context_parallel/block_ring.h"

#include "spec/groups.h"

namespace echelon {
namespace {

/// f(rows) for each run of rows of x [B, T, ...], sequence after sequence.
template <class F>
void for_each_run(const Tensor& x, std::int64_t b, const RowRuns& runs, F f) {
  const std::int64_t T = x.size(1);
  const Tensor rows = x.reshaped({x.size(0) * T, x.num_elements() / (x.size(0) * T)});
  for (const RowRun& run : runs) f(rows.rows(b * T + run.first, run.end - run.first));
}

}  // namespace

Group ring_group(const KeyExchange& exchange) {
  return exchange.head_ranks > 1 ? cp_ring_group(exchange.head_ranks) : cp_group;
}

BlockRing::BlockRing(Context& context, const KeyExchange& exchange, bool skips_rows)
    : context_(context), comm_(context.mesh.comm(ring_group(exchange))), skips_rows_(skips_rows) {}

BlockRing::Hop BlockRing::pass(const KeyBlock& sent, const KeyBlock& received, int distance, TransferOf transfer_of) {
  const int next = (comm_.rank() + 1) % comm_.size(), before = (comm_.rank() + comm_.size() - 1) % comm_.size();
  Hop hop;
  const auto send = [&](const Tensor& x) { hop.pending_.push_back(comm_.send(x, next)); };
  const auto receive = [&](const Tensor& x) { hop.pending_.push_back(comm_.receive(x, before)); };
  const std::span<const RingRows> rows = context_.microbatch.ring_rows;
  context_.ops.publish();
  context_.mesh.together([&] {
    for (const std::size_t i : {0, 1}) {
      if (rows.empty()) {
        send(sent[i]);
        receive(received[i]);
      }
      for (std::size_t b = 0; b < rows.size(); ++b) {
        const RowTransfer& transfer = transfer_of(rows[b], distance);
        for_each_run(sent[i], static_cast<std::int64_t>(b), transfer.sent, send);
        for_each_run(received[i], static_cast<std::int64_t>(b), transfer.received, receive);
      }
    }
  });
  return hop;
}

BlockRing::Hop BlockRing::pass_keys(const KeyBlock& sent, const KeyBlock& received, int distance) {
  return pass(sent, received, distance,
              [](const RingRows& rows, int from) -> const RowTransfer& { return rows.keys(from); });
}

BlockRing::Hop BlockRing::pass_gradients(const KeyBlock& sent, const KeyBlock& received, int distance) {
  if (skips_rows_)
    for (const Tensor& x : received) context_.ops.fill(x, 0);
  return pass(sent, received, distance,
              [](const RingRows& rows, int from) -> const RowTransfer& { return rows.gradients(from); });
}

KeyBlock BlockRing::take_keys(const KeyBlock& block) {
  KeyBlock taken;
  for (const std::size_t i : {0, 1}) {
    taken[i] = context_.workspace.take(block[i].dtype, block[i].sizes);
    if (skips_rows_) context_.ops.fill(taken[i], 0);
  }
  return taken;
}

}  // namespace echelon
