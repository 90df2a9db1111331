#include "nn/context_parallel/head_exchange.h"

#include "spec/groups.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

Tensor as_rows(const Tensor& x, std::int64_t columns) { return x.reshaped({x.num_elements() / columns, columns}); }

/// Starts all of them, and lets each be used when it has arrived.
template <class Use>
void exchange(Context& context, const Group& group, const std::vector<Tensor>& received,
              const std::vector<Tensor>& sent, Use use) {
  Comm& comm = context.mesh.comm(group);
  std::vector<Pending> pending(sent.size());
  context.ops.publish();
  context.mesh.together([&] {
    for (std::size_t i = 0; i < sent.size(); ++i) pending[i] = comm.all_to_all(received[i], sent[i]);
  });
  for (std::size_t i = 0; i < sent.size(); ++i) {
    pending[i].wait();
    use(i);
  }
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

void HeadExchange::to_heads(Context& context, std::initializer_list<Pair> pairs) const {
  const Stack::Scope scope(context.workspace);
  std::vector<Tensor> sent, received;
  for (const Pair& pair : pairs) {
    sent.push_back(take_parts(context.workspace, pair));
    received.push_back(take_parts(context.workspace, pair));
    context.ops.split_heads(
        {.x = parts_of_tokens(pair.by_tokens), .y = sent.back(), .copies = copies(pair.by_tokens.size(2))});
  }
  exchange(context, group_, received, sent, [&](std::size_t i) {
    const std::int64_t columns = received[i].size(2);
    context.ops.gather_rows({.x = as_rows(received[i], columns),
                             .index = context.microbatch.rows_by_position,
                             .y = as_rows(std::data(pairs)[i].by_heads, columns)});
  });
}

void HeadExchange::to_tokens(Context& context, std::initializer_list<Pair> pairs) const {
  const Stack::Scope scope(context.workspace);
  std::vector<Tensor> sent, received;
  for (const Pair& pair : pairs) {
    sent.push_back(take_parts(context.workspace, pair));
    received.push_back(take_parts(context.workspace, pair));
    const std::int64_t columns = sent.back().size(2);
    context.ops.gather_rows({.x = as_rows(pair.by_heads, columns),
                             .index = context.microbatch.rows_by_rank,
                             .y = as_rows(sent.back(), columns)});
  }
  exchange(context, group_, received, sent, [&](std::size_t i) {
    const Tensor& by_tokens = std::data(pairs)[i].by_tokens;
    context.ops.join_heads({.x = received[i], .y = parts_of_tokens(by_tokens), .copies = copies(by_tokens.size(2))});
  });
}

HeadSplit exchanged_heads(const HeadSplit& split, std::int64_t u, std::int64_t place) {
  HeadSplit part = split;
  part.num_heads = split.num_heads / u;
  part.num_kv_heads = std::max<std::int64_t>(split.num_kv_heads / u, 1);
  if (split.num_kv_heads < u) part.head_in_group += place % (u / split.num_kv_heads) * part.num_heads;
  return part;
}

}  // namespace echelon
