// Attention of new positions over a cache of keys and values.
#include "nn/attention.h"

namespace echelon {

void Attention::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t C = options_.model.head_dim;
  const std::int64_t num_sequences = cache.k.size(0), num_new = x.size(0) / num_sequences,
                     num_positions = first_position + num_new;
  const Projections qkv = take_projections(context.workspace, x.size(0));
  const Projections products = take_across_norms(context.workspace, qkv);
  projections_.products(context, x, products);
  if (norms_)
    for (std::size_t i = 0; i < 2; ++i) (*norms_)[i].apply(context, per_head(products[i]), per_head(qkv[i]));
  const Tensor q = qkv[0].reshaped({num_sequences, num_new, split_.num_heads, C});
  const Tensor k = qkv[1].reshaped({num_sequences, num_new, split_.num_kv_heads, C});
  const Tensor v = qkv[2].reshaped(k.sizes);
  rotate(context.ops, q, false, first_position);
  rotate(context.ops, k, false, first_position);
  const Tensor out = context.workspace.take(options_.dtype, q.sizes);
  const Tensor lse = context.workspace.take(accumulate_dtype(options_.dtype), {1, split_.num_heads, num_new});
  // One sequence after the other: the positions so far of several are not contiguous in the cache.
  for (std::int64_t b = 0; b < num_sequences; ++b) {
    const auto past = [&](Tensor all) {
      return all.rows(b, 1).reshaped({all.size(1), all.size(2), C}).rows(0, num_positions);
    };
    const auto one_sequence = [&](Tensor positions) {
      return positions.reshaped({1, positions.size(0), positions.size(1), C});
    };
    const Tensor k_past = past(cache.k), v_past = past(cache.v);
    context.ops.copy(k_past.rows(first_position, num_new).flat(), k.rows(b, 1).flat());
    context.ops.copy(v_past.rows(first_position, num_new).flat(), v.rows(b, 1).flat());
    attend(context.ops, {q.rows(b, 1), one_sequence(k_past), one_sequence(v_past)}, out.rows(b, 1), lse, {});
  }
  output_.forward(context, out.reshaped(qkv[0].sizes), y);
}

}  // namespace echelon
