#include "nn/context_parallel/head_exchange.h"

#include "spec/groups.h"

#include <algorithm>
#include <span>
#include <vector>

namespace echelon {
namespace {

Tensor as_rows(const Tensor& x, std::int64_t columns) { return x.reshaped({x.num_elements() / columns, columns}); }

/// Starts all of them, and lets each be used when it has arrived.
template <class Start, class Use>
void exchange(Context& context, std::size_t count, Start start, Use use) {
  std::vector<Pending> pending(count);
  context.ops.publish();
  context.mesh.together([&] {
    for (std::size_t i = 0; i < count; ++i) pending[i] = start(i);
  });
  for (std::size_t i = 0; i < count; ++i) {
    pending[i].wait();
    use(i);
  }
  context.mesh.enter_part({LayerPart::Kind::whole});
}

std::span<const std::int32_t> all_of(const Tensor& index) {
  return {index.as<std::int32_t>(), static_cast<std::size_t>(index.num_elements())};
}

}  // namespace

HeadExchange::HeadExchange(const LayerOptions& options)
    : u_(options.tokens->exchange.head_ranks),
      num_rows_(options.tokens->blocks.num_query_rows()),
      group_(u_ == options.tokens->cp ? cp_group : cp_heads_group(static_cast<int>(u_))) {}

Sizes HeadExchange::sizes_by_heads(const Tensor& by_tokens) const {
  return {by_tokens.size(0), num_rows_, std::max<std::int64_t>(by_tokens.size(2) / u_, 1), by_tokens.size(3)};
}

Tensor HeadExchange::parts_of_tokens(const Tensor& by_tokens) const {
  const std::int64_t heads = by_tokens.size(2), parts = std::min(heads, u_);
  return by_tokens.reshaped({by_tokens.size(0) * by_tokens.size(1), parts, heads / parts * by_tokens.size(3)});
}

Tensor HeadExchange::take_parts(Stack& workspace, const Pair& pair) const {
  const Tensor& x = pair.by_tokens;
  return workspace.take(x.dtype, {u_, x.size(0) * x.size(1), pair.by_heads.size(2) * pair.by_heads.size(3)});
}

bool HeadExchange::is_direct(const Comm& comm, const Pair& pair) const {
  return comm.can_exchange_columns() && copies(pair.by_tokens.size(2)) == 1;
}

void HeadExchange::to_heads(Context& context, std::initializer_list<Pair> pairs) const {
  context.mesh.enter_part({LayerPart::Kind::to_heads});
  const Stack::Scope scope(context.workspace);
  Comm& comm = context.mesh.comm(group_);
  const Tensor& index = context.microbatch.rows_by_position;
  std::vector<Tensor> sent, received;
  for (const Pair& pair : pairs) {
    sent.push_back(take_parts(context.workspace, pair));
    received.push_back(take_parts(context.workspace, pair));
    if (is_direct(comm, pair)) continue;
    context.ops.split_heads(
        {.x = parts_of_tokens(pair.by_tokens), .y = sent.back(), .copies = copies(pair.by_tokens.size(2))});
  }
  const auto rows_of = [&](std::size_t i) { return as_rows(std::data(pairs)[i].by_heads, sent[i].size(2)); };
  const auto start = [&](std::size_t i) {
    const Pair& pair = std::data(pairs)[i];
    if (!is_direct(comm, pair)) return comm.all_to_all(received[i], sent[i]);
    return comm.exchange_columns(
        {.received = rows_of(i), .sent = parts_of_tokens(pair.by_tokens), .rows = all_of(index), .gathers_rows = true});
  };
  exchange(context, sent.size(), start, [&](std::size_t i) {
    if (is_direct(comm, std::data(pairs)[i])) return;
    context.ops.gather_rows({.x = as_rows(received[i], received[i].size(2)), .index = index, .y = rows_of(i)});
  });
}

void HeadExchange::to_tokens(Context& context, std::initializer_list<Pair> pairs) const {
  context.mesh.enter_part({LayerPart::Kind::to_tokens});
  const Stack::Scope scope(context.workspace);
  Comm& comm = context.mesh.comm(group_);
  const Tensor& index = context.microbatch.rows_by_rank;
  std::vector<Tensor> sent, received;
  for (const Pair& pair : pairs) {
    sent.push_back(take_parts(context.workspace, pair));
    received.push_back(take_parts(context.workspace, pair));
    if (is_direct(comm, pair)) continue;
    const std::int64_t columns = sent.back().size(2);
    context.ops.gather_rows({.x = as_rows(pair.by_heads, columns), .index = index, .y = as_rows(sent.back(), columns)});
  }
  const auto start = [&](std::size_t i) {
    const Pair& pair = std::data(pairs)[i];
    if (!is_direct(comm, pair)) return comm.all_to_all(received[i], sent[i]);
    return comm.exchange_columns({.received = parts_of_tokens(pair.by_tokens),
                                  .sent = as_rows(pair.by_heads, sent[i].size(2)),
                                  .rows = all_of(index),
                                  .gathers_rows = false});
  };
  exchange(context, sent.size(), start, [&](std::size_t i) {
    const Tensor& by_tokens = std::data(pairs)[i].by_tokens;
    if (is_direct(comm, std::data(pairs)[i])) return;
    context.ops.join_heads({.x = received[i], .y = parts_of_tokens(by_tokens), .copies = copies(by_tokens.size(2))});
  });
}

HeadSplit exchanged_heads(const HeadSplit& split, std::int64_t u, std::int64_t place) {
  HeadSplit part = split;
  part.num_heads = split.num_heads / u;
  part.num_kv_heads = std::max<std::int64_t>(split.num_kv_heads / u, 1);
  part.first_head += place * part.num_heads;
  part.first_kv_head += place * split.num_kv_heads / u;
  if (split.num_kv_heads < u) part.head_in_group += place % (u / split.num_kv_heads) * part.num_heads;
  return part;
}

}  // namespace echelon
