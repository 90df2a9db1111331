// Attention of new positions over a cache of keys and values.
#include "nn/decoder/attention.h"

#include <algorithm>
#include <vector>

namespace echelon {

namespace {

/// Of new queries, from `first_query` on, counted from the first key: int32 [1, num_queries], the first key that each
/// sees. Does not exist where that is key 0 for all.
Tensor upload_begins(Context& context, std::int64_t window, std::int64_t first_query, std::int64_t num_queries) {
  if (window == 0 || first_query + num_queries <= window || num_queries == 1) return {};
  std::vector<std::int32_t> begins;
  for (std::int64_t i = 0; i < num_queries; ++i)
    begins.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, first_query + i - window + 1)));
  const Tensor begin = context.workspace.take(DType::int32, {1, num_queries});
  context.ops.upload(begin, begins.data());
  return begin;
}

}  // namespace

void Attention::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t B = cache.k.size(0);
  const Qkv qkv = take_qkv(context.workspace, x.size(0)), products = place_norm_outputs(context.workspace, qkv);
  projections_.products(context, x, products);
  for (std::size_t i = 0; i < norms_.size(); ++i) norms_[i].apply(context, norm_rows(products[i]), norm_rows(qkv[i]));
  for (const Tensor& each : qkv) clip(context, each);
  const Tensor q = heads_BTHC(qkv[0], B), k = heads_BTHC(qkv[1], B), v = heads_BTHC(qkv[2], B);
  rotate(context, 0, q, false, first_position);
  rotate(context, 1, k, false, first_position);
  const Tensor out = context.workspace.take(options_.dtype, q.sizes);
  attend_to_cache(context, options_, *core_, {q, k, v}, {.cache = cache, .first_position = first_position, .out = out});
  output_.forward(context, out.reshaped(qkv[0].sizes), y);
}

void attend_to_cache(Context& context, const LayerOptions& options, const AttentionCore& core, const Qkv& qkv,
                     const CachedAttention& to) {
  const Stack::Scope scope(context.workspace);
  const auto& [q, k, v] = qkv;
  const std::int64_t B = q.size(0), num_new = q.size(1), first_position = to.first_position,
                     num_positions = first_position + num_new;
  const Tensor lse = context.workspace.take(accumulate_dtype(options.dtype), {1, q.size(2), num_new});
  // The first position that a new one sees.
  const std::int64_t first_seen =
      options.window == 0 ? 0 : std::max<std::int64_t>(0, first_position - options.window + 1);
  const Tensor begin = upload_begins(context, options.window, first_position - first_seen, num_new);
  // One sequence after the other: the positions so far of several are not contiguous in the cache.
  for (std::int64_t b = 0; b < B; ++b) {
    const auto positions_THC = [&](Tensor all, std::int64_t first, std::int64_t count) {
      return all.rows(b, 1).reshaped({all.size(1), all.size(2), all.size(3)}).rows(first, count);
    };
    const auto one_sequence = [&](Tensor positions) {
      return positions.reshaped({1, positions.size(0), positions.size(1), positions.size(2)});
    };
    context.ops.copy(positions_THC(to.cache.k, first_position, num_new).flat(), k.rows(b, 1).flat());
    context.ops.copy(positions_THC(to.cache.v, first_position, num_new).flat(), v.rows(b, 1).flat());
    const auto seen = [&](Tensor all) {
      return one_sequence(positions_THC(all, first_seen, num_positions - first_seen));
    };
    core.decode(context.ops, {q.rows(b, 1), seen(to.cache.k), seen(to.cache.v)}, begin, {to.out.rows(b, 1), lse});
  }
}

}  // namespace echelon
