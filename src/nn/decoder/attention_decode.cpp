// Attention of new positions over a cache of keys and values.
#include "nn/decoder/attention.h"

namespace echelon {

void Attention::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t B = cache.k.size(0), num_new = x.size(0) / B, num_positions = first_position + num_new;
  const Qkv qkv = take_qkv(context.workspace, x.size(0)), products = place_norm_outputs(context.workspace, qkv);
  projections_.products(context, x, products);
  for (std::size_t i = 0; i < norms_.size(); ++i) norms_[i].apply(context, per_head(products[i]), per_head(qkv[i]));
  const Tensor q = heads_BTHC(qkv[0], B), k = heads_BTHC(qkv[1], B), v = heads_BTHC(qkv[2], B);
  rotate(context, q, false, first_position);
  rotate(context, k, false, first_position);
  const Tensor out = context.workspace.take(options_.dtype, q.sizes);
  const Tensor lse = context.workspace.take(accumulate_dtype(options_.dtype), {1, split_.num_heads, num_new});
  // One sequence after the other: the positions so far of several are not contiguous in the cache.
  for (std::int64_t b = 0; b < B; ++b) {
    const auto past_THC = [&](Tensor all) {
      return all.rows(b, 1).reshaped({all.size(1), all.size(2), all.size(3)}).rows(0, num_positions);
    };
    const auto one_sequence = [&](Tensor positions) {
      return positions.reshaped({1, positions.size(0), positions.size(1), positions.size(2)});
    };
    const Tensor k_past = past_THC(cache.k), v_past = past_THC(cache.v);
    context.ops.copy(k_past.rows(first_position, num_new).flat(), k.rows(b, 1).flat());
    context.ops.copy(v_past.rows(first_position, num_new).flat(), v.rows(b, 1).flat());
    core_->decode(context.ops, {q.rows(b, 1), one_sequence(k_past), one_sequence(v_past)}, out.rows(b, 1), lse);
  }
  output_.forward(context, out.reshaped(qkv[0].sizes), y);
}

}  // namespace echelon
