#include "nn/decoder/latent_attention.h"

#include "nn/latent_projections.h"
#include "nn/tensor_parallel.h"

#include <utility>

namespace echelon {

LatentAttention::LatentAttention(const LayerOptions& options, const std::string& name, const RopeTables& rope)
    : options_(options),
      name_(name),
      split_(head_split(options.model, options.tp, options.tp_rank)),
      rope_(rope),
      expand_query_(expanding_query(options, name, split_)),
      down_(whole_linear(options, name + ".kv_a_proj", options.model.kv_lora_rank)),
      rope_proj_(whole_linear(options, name + ".k_rope_proj", options.model.qk_rope_head_dim)),
      norm_(norm_of_latent(options, name + ".kv_a_layernorm", options.model.kv_lora_rank)),
      expand_(expanding_keys(options, name, split_)),
      core_(make_attention_core(options, split_)),
      output_(row_parallel(options, name + ".o_proj", options.model.num_attention_heads * options.model.v_head_dim,
                           {split_.first_head * options.model.v_head_dim, split_.num_heads * options.model.v_head_dim},
                           false)) {
  if (const std::int64_t width = options.model.q_lora_rank; width > 0)
    query_.emplace(QueryLatent{.down = whole_linear(options, name + ".q_a_proj", width),
                               .norm = norm_of_latent(options, name + ".q_a_layernorm", width)});
}

std::vector<Param*> LatentAttention::params() {
  std::vector<Param*> params;
  const auto append = [&](const std::vector<Param*>& more) { params.insert(params.end(), more.begin(), more.end()); };
  if (query_) append(query_->down.params());
  if (query_) append(query_->norm.params());
  append(expand_query_.params());
  append(down_.params());
  append(rope_proj_.params());
  append(norm_.params());
  append(expand_.params());
  append(output_.params());
  return params;
}

void LatentAttention::compute(const ComputePass& pass, Tensor x) const {
  Context& context = pass.context;
  const std::int64_t N = options_.num_tokens(), L = options_.num_local_tokens();
  const bool is_dropped = drops_qkv();
  const auto place = [&](int which, LastReader last_reader, const Sizes& sizes) {
    return pass.place({this, which, is_dropped, last_reader}, options_.dtype, sizes);
  };
  Qkv qkv;
  for (const int i : {saved_q, saved_k, saved_v})
    qkv[static_cast<std::size_t>(i)] = place(i, LastReader::backward_input, sizes_of_qkv(N));
  const Tensor latent = place(saved_latent, LastReader::backward_weight, {L, options_.model.kv_lora_rank});
  norm_.save(pass, latent, is_dropped);
  Tensor q_latent;
  if (query_) {
    q_latent = place(saved_q_latent, LastReader::backward_weight, {L, options_.model.q_lora_rank});
    query_->norm.save(pass, q_latent, is_dropped);
  }
  save_x(pass.stash, x);
  if (pass.runs(is_dropped)) {
    const Stack::Scope scope(context.workspace);
    if (query_) {
      query_->down.product(context, x, q_latent);
      const Tensor normed = take_like(context, q_latent);
      query_->norm.normalise(context, normed, pass.stash);
      expand_query_.forward(context, normed, {&qkv[0], 1});
    } else {
      expand_query_.forward(context, x, {&qkv[0], 1});
    }
    down_.product(context, x, latent);
    const Tensor normed = take_like(context, latent),
                 expanded = context.workspace.take(options_.dtype, {N, expanded_width()}),
                 rope = context.workspace.take(options_.dtype, {L, options_.model.qk_rope_head_dim});
    norm_.normalise(context, normed, pass.stash);
    expand_.forward(context, normed, {&expanded, 1});
    rope_proj_.product(context, x, rope);
    const Tensor rope_full = enter(context, options_, rope);
    rotate(context, heads_BTHC(qkv[0], options_.num_sequences), false);
    rotate(context, rope_BTHC(rope_full, options_.num_sequences), false);
    expand_keys(context, expanded, rope_full, qkv);
  }
  context.mesh.enter_layer(name_);
  core_->compute(pass, saved_qkv(pass.stash));
  context.mesh.leave_layer();
}

void LatentAttention::project(Context& context, Tensor y, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  output_.forward(context, shortened(context, core_->out(stash)), y);
}

void LatentAttention::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  int which = first_gradient;
  const Gradients d =
      take_gradients([&](const Sizes& sizes) { return stash.save_gradient(this, which++, options_.dtype, sizes); });
  gather_tokens_into(context, options_, d.dy, dy);
  backward_to_latents(context, d, stash,
                      [&](const Norm& norm, Tensor from, Tensor to) { norm.backward_input(context, from, to, stash); });
  input_gradient(context, d, dx);
}

void LatentAttention::backward_weight(Context& context, Stash& stash) {
  int which = first_gradient;
  const Gradients d = take_gradients([&](const Sizes& /*sizes*/) { return stash.saved(this, which++); });
  weight_gradients(context, d, stash);
  if (query_) query_->norm.backward_weight(context, stash);
  norm_.backward_weight(context, stash);
}

void LatentAttention::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  Gradients d = take_gradients([&](const Sizes& sizes) { return context.workspace.take(options_.dtype, sizes); });
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
  d.dy = take(Sizes{N, model.hidden_size});
  d.dq = take(sizes_of_qkv(N));
  d.dexpanded = take(Sizes{N, expanded_width()});
  d.dlatent = take(Sizes{L, model.kv_lora_rank});
  d.drope = take(Sizes{L, model.qk_rope_head_dim});
  if (query_) d.dq_latent = take(Sizes{L, model.q_lora_rank});
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
    output_.backward_input(context, d.dy, dshort);
    const std::int64_t rows = options_.num_tokens() * split_.num_heads;
    context.ops.resize_rows({.x = dshort.reshaped({rows, options_.model.v_head_dim}),
                             .y = of_out.dout.reshaped({rows, options_.model.head_dim})});
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

void LatentAttention::decode(Context& context, Tensor x, Tensor y, const KvCache& cache,
                             std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const std::int64_t B = cache.k.size(0), N = x.size(0);
  const auto take = [&](std::int64_t width) { return context.workspace.take(options_.dtype, {N, width}); };
  Qkv qkv;
  for (Tensor& each : qkv) each = take(sizes_of_qkv(N)[1]);
  if (query_) {
    const Tensor latent = take(options_.model.q_lora_rank), normed = take(options_.model.q_lora_rank);
    query_->down.product(context, x, latent);
    query_->norm.apply(context, latent, normed);
    expand_query_.products(context, normed, {&qkv[0], 1});
  } else {
    expand_query_.products(context, x, {&qkv[0], 1});
  }
  const Tensor latent = take(options_.model.kv_lora_rank), normed = take(options_.model.kv_lora_rank),
               rope = take(options_.model.qk_rope_head_dim), expanded = take(expanded_width());
  down_.product(context, x, latent);
  norm_.apply(context, latent, normed);
  expand_.products(context, normed, {&expanded, 1});
  rope_proj_.product(context, x, rope);
  rotate(context, heads_BTHC(qkv[0], B), false, first_position);
  rotate(context, rope_BTHC(rope, B), false, first_position);
  expand_keys(context, expanded, rope, qkv);
  const Tensor out = take(sizes_of_qkv(N)[1]);
  attend_to_cache(context, options_, *core_, {heads_BTHC(qkv[0], B), heads_BTHC(qkv[1], B), heads_BTHC(qkv[2], B)},
                  {.cache = cache, .first_position = first_position, .out = heads_BTHC(out, B)});
  output_.forward(context, shortened(context, out), y);
}

void LatentAttention::expand_keys(Context& context, Tensor expanded, Tensor rope, const Qkv& qkv) const {
  const std::int64_t N = expanded.size(0), H = split_.num_heads, C = options_.model.head_dim;
  context.ops.expand_latents({.x = expanded.reshaped({N, H, expanded_head(options_.model)}),
                              .rope = rope,
                              .k = qkv[1].reshaped({N, H, C}),
                              .v = qkv[2].reshaped({N, H, C})});
}

Tensor LatentAttention::shortened(Context& context, Tensor out) const {
  const std::int64_t N = out.size(0), H = split_.num_heads, V = options_.model.v_head_dim;
  const Tensor result = context.workspace.take(out.dtype, {N, H * V});
  context.ops.resize_rows({.x = out.reshaped({N * H, options_.model.head_dim}), .y = result.reshaped({N * H, V})});
  return result;
}

void LatentAttention::rotate(Context& context, Tensor x_BTHC, bool inverse, std::int64_t first_position) const {
  rotate_heads(context, options_, rope_, {.x_BTHC = x_BTHC, .inverse = inverse, .first_position = first_position});
}

Sizes LatentAttention::sizes_of_qkv(std::int64_t num_tokens) const {
  return {num_tokens, split_.num_heads * options_.model.head_dim};
}

std::int64_t LatentAttention::expanded_width() const { return split_.num_heads * expanded_head(options_.model); }

Tensor LatentAttention::rope_BTHC(Tensor rope, std::int64_t num_sequences) const {
  return rope.reshaped({num_sequences, rope.size(0) / num_sequences, 1, rope.size(1)});
}

Tensor LatentAttention::heads_BTHC(Tensor x, std::int64_t num_sequences) const {
  return x.reshaped({num_sequences, x.size(0) / num_sequences, split_.num_heads, options_.model.head_dim});
}

Qkv LatentAttention::saved_qkv(const Stash& stash) const {
  const auto saved = [&](int which) { return heads_BTHC(stash.saved(this, which), options_.num_sequences); };
  return {saved(saved_q), saved(saved_k), saved(saved_v)};
}

}  // namespace echelon
