#include "nn/context_parallel/key_gather.h"

#include "nn/context_parallel/row_transfers.h"
#include "spec/groups.h"

namespace echelon {
namespace {

/// The part of rank `rank`, [B, T, C].
Tensor part_of(const Tensor& full, int rank) {
  return full.rows(rank, 1).reshaped({full.size(1), full.size(2), full.size(3)});
}

KeyBlock take_zeros(Context& context, DType dtype, const Sizes& sizes, bool are_zeros) {
  KeyBlock taken;
  for (Tensor& x : taken) {
    x = context.workspace.take(dtype, sizes);
    if (are_zeros) context.ops.fill(x, 0);
  }
  return taken;
}

}  // namespace

KeyGather::KeyGather(Context& context, const TravellingRows& rows)
    : context_(context), comm_(context.mesh.comm(cp_group)), rows_(rows) {}

KeyBlock KeyGather::take_full(const KeyBlock& own) {
  const Tensor& x = own[0];
  return take_zeros(context_, x.dtype, {comm_.size(), x.size(1), x.size(2), x.size(3)}, rows_.may_be_skipped);
}

void KeyGather::start(const KeyBlock& full, const KeyBlock& own) {
  const std::span<const KeyTransfers> rows = rows_.transfers;
  const int n = comm_.size(), rank = comm_.rank();
  if (!rows.empty())
    for (const std::size_t i : {0, 1}) context_.ops.copy(full[i].rows(rank, 1), own[i]);
  context_.ops.publish();
  context_.mesh.together([&] {
    for (const std::size_t i : {0, 1}) {
      if (rows.empty()) receives_[i].push_back(comm_.all_gather(full[i], own[i]));
      for (int distance = 1; distance < n && !rows.empty(); ++distance) {
        const int to = (rank + distance) % n, from = (rank - distance + n) % n;
        const RowPath path = {.sent = part_of(own[i], 0), .received = part_of(full[i], from), .to = to, .from = from};
        for (std::size_t b = 0; b < rows.size(); ++b)
          start_transfers(comm_, path, static_cast<std::int64_t>(b), rows[b].keys(distance), {sends_, receives_[i]});
      }
    }
  });
}

void KeyGather::wait(std::size_t i) { wait_for(receives_[i]); }

void KeyGather::finish() { wait_for(sends_); }

GradientScatter::GradientScatter(Context& context, const KeyBlock& full, const TravellingRows& rows)
    : context_(context), comm_(context.mesh.comm(cp_group)), rows_(rows) {
  if (rows_.may_be_skipped) arrived_ = take_zeros(context, full[0].dtype, full[0].sizes, false);
}

void GradientScatter::start(const KeyBlock& own, const KeyBlock& full) {
  own_ = own;
  const bool skips_rows = !rows_.transfers.empty();
  for (const std::size_t i : {0, 1}) {
    if (!skips_rows) break;
    context_.ops.fill(arrived_[i], 0);
    context_.ops.copy(arrived_[i].rows(comm_.rank(), 1), full[i].rows(comm_.rank(), 1));
  }
  context_.ops.publish();
  context_.mesh.together([&] {
    if (skips_rows) return start_transfers_of(full);
    for (const std::size_t i : {0, 1}) receives_.push_back(comm_.reduce_scatter(own[i], full[i], ReduceOp::sum));
  });
}

// Gradients go back to where the keys came from.
void GradientScatter::start_transfers_of(const KeyBlock& full) {
  const std::span<const KeyTransfers> rows = rows_.transfers;
  const int n = comm_.size(), rank = comm_.rank();
  for (const std::size_t i : {0, 1})
    for (int distance = 1; distance < n; ++distance) {
      const int to = (rank - distance + n) % n, from = (rank + distance) % n;
      const RowPath path = {
          .sent = part_of(full[i], to), .received = part_of(arrived_[i], from), .to = to, .from = from};
      for (std::size_t b = 0; b < rows.size(); ++b)
        start_transfers(comm_, path, static_cast<std::int64_t>(b), rows[b].gradients(distance), {sends_, receives_});
    }
}

void GradientScatter::wait() {
  if (!own_[0].exists()) return;
  wait_for(receives_);
  if (!rows_.transfers.empty())
    for (const std::size_t i : {0, 1}) {
      const Tensor &x = arrived_[i], &sum = own_[i];
      const std::int64_t num_rows = x.size(1) * x.size(2);
      context_.ops.join_heads({.x = x.reshaped({x.size(0), num_rows, x.size(3)}),
                               .y = sum.reshaped({num_rows, 1, x.size(3)}),
                               .copies = x.size(0)});
    }
  own_ = {};
}

void GradientScatter::finish() { wait_for(sends_); }

}  // namespace echelon
