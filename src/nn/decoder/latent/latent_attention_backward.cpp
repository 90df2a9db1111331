// The gradients of multi-head latent attention.
#include "nn/decoder/latent/latent_attention.h"
#include "nn/latent_projections.h"
#include "nn/tensor_parallel.h"

namespace echelon {

void LatentAttention::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  int which = first_gradient;
  const Gradients d = take_gradients([&](RowKind rows, const Sizes& sizes) {
    return stash.save_gradient({this, which++, rows}, options_.dtype, sizes);
  });
  gather_tokens_into(context, options_, d.dy, dy);
  backward_to_latents(context, d, stash,
                      [&](const Norm& norm, Tensor from, Tensor to) { norm.backward_input(context, from, to, stash); });
  input_gradient(context, d, dx);
}

void LatentAttention::backward_weight(Context& context, Stash& stash) {
  int which = first_gradient;
  const Gradients d =
      take_gradients([&](RowKind /*rows*/, const Sizes& /*sizes*/) { return stash.saved(this, which++); });
  weight_gradients(context, d, stash);
  if (query_) query_->norm.backward_weight(context, stash);
  norm_.backward_weight(context, stash);
}

void LatentAttention::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  Gradients d = take_gradients(
      [&](RowKind /*rows*/, const Sizes& sizes) { return context.workspace.take(options_.dtype, sizes); });
  gather_tokens_into(context, options_, d.dy, dy);
  backward_to_latents(context, d, stash, [&](const Norm& norm, Tensor from, Tensor to) {
    (&norm == &norm_ ? norm_ : query_->norm).backward(context, from, to, stash);
  });
  weight_gradients(context, d, stash);
  input_gradient(context, d, dx);  // dx may be stored in x
}

template <class Take>
LatentAttention::Gradients LatentAttention::take_gradients(const Take& take) const {
  const std::int64_t N = options_.num_tokens(), L = options_.num_local_tokens();
  const ModelSpec& model = options_.model;
  Gradients d;
  d.dy = take(RowKind::sequence, Sizes{N, model.hidden_size});
  d.dq = take(RowKind::sequence, sizes_of_qkv(N));
  d.dexpanded = take(RowKind::sequence, Sizes{N, expanded_width()});
  d.dlatent = take(RowKind::local, Sizes{L, model.kv_lora_rank});
  d.drope = take(RowKind::local, Sizes{L, model.qk_rope_head_dim});
  if (query_) d.dq_latent = take(RowKind::local, Sizes{L, model.q_lora_rank});
  return d;
}

template <class Through>
void LatentAttention::backward_to_latents(Context& context, const Gradients& d, const Stash& stash,
                                          const Through& through) const {
  const std::int64_t B = options_.num_sequences;
  {
    const Stack::Scope scope(context.workspace);
    const Tensor dk = take_like(context, d.dq), dv = take_like(context, d.dq),
                 dshort = context.workspace.take(options_.dtype,
                                                 {options_.num_tokens(), split_.num_heads * options_.model.v_head_dim});
    const AttentionCore::OutGradient of_out = core_->take_out_gradient(context.workspace, stash);
    LinearOperand of_dy = output_.operand(context, d.dy, Float8Order::as_is);
    output_.backward_input(context, of_dy, dshort);
    const std::int64_t N = options_.num_tokens(), H = split_.num_heads;
    context.ops.resize_rows({.x = dshort.reshaped({N, H, options_.model.v_head_dim}),
                             .y = of_out.dout.reshaped({N, H, options_.model.head_dim})});
    context.mesh.enter_layer(name_);
    core_->backward(context, saved_qkv(stash), of_out, {heads_BTHC(d.dq, B), heads_BTHC(dk, B), heads_BTHC(dv, B)},
                    stash);
    context.mesh.leave_layer();
    rotate(context, heads_BTHC(d.dq, B), true);
    const Tensor drope = partial_of(context, options_, d.drope);
    const Sizes by_heads = {options_.num_tokens(), split_.num_heads, options_.model.head_dim};
    context.ops.expand_latents_backward(
        {.dk = dk.reshaped(by_heads),
         .dv = dv.reshaped(by_heads),
         .dx = d.dexpanded.reshaped({options_.num_tokens(), split_.num_heads, expanded_head(options_.model)}),
         .drope = drope});
    rotate(context, rope_BTHC(drope, B), true);
    sum_partials(context, options_, d.drope, drope);
  }
  const Stack::Scope scope(context.workspace);
  const Tensor dnormed = take_like(context, d.dlatent);
  expand_.backward_input(context, {&d.dexpanded, 1}, dnormed);
  through(norm_, dnormed, d.dlatent);
  if (!query_) return;
  const Tensor dnormed_q = take_like(context, d.dq_latent);
  expand_query_.backward_input(context, {&d.dq, 1}, dnormed_q);
  through(query_->norm, dnormed_q, d.dq_latent);
}

void LatentAttention::input_gradient(Context& context, const Gradients& d, Tensor dx) const {
  if (query_)
    query_->down.backward_input(context, d.dq_latent, dx);
  else
    expand_query_.backward_input(context, {&d.dq, 1}, dx);
  down_.backward_input(context, d.dlatent, dx, Linear::Write::accumulate);
  rope_proj_.backward_input(context, d.drope, dx, Linear::Write::accumulate);
}

void LatentAttention::weight_gradients(Context& context, const Gradients& d, const Stash& stash) {
  const Stack::Scope scope(context.workspace);
  output_.backward_weight(context, d.dy, shortened(context, core_->out(stash)));
  const Tensor x = saved_x(stash), normed = take_like(context, d.dlatent);
  norm_.normalise(context, normed, stash);
  expand_.backward_weight(context, {&d.dexpanded, 1}, normed);
  down_.weight_backward(context, d.dlatent, x);
  rope_proj_.weight_backward(context, d.drope, x);
  if (!query_) return expand_query_.backward_weight(context, {&d.dq, 1}, x);
  const Tensor normed_q = take_like(context, d.dq_latent);
  query_->norm.normalise(context, normed_q, stash);
  expand_query_.backward_weight(context, {&d.dq, 1}, normed_q);
  query_->down.weight_backward(context, d.dq_latent, x);
}

}  // namespace echelon
