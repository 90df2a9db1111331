#include "nn/decoder/latent/latent_attention.h"

#include "nn/latent_projections.h"
#include "nn/tensor_parallel.h"

#include <array>

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
  add_adapters(options, std::array{&down_, &rope_proj_}, ShardedSide::none);
  if (query_) add_adapters(options, {&query_->down, 1}, ShardedSide::none);
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
  const auto place = [&](const StashEntry& entry, const Sizes& sizes) {
    return pass.place(entry, is_dropped, options_.dtype, sizes);
  };
  Qkv qkv;
  for (const int i : {saved_q, saved_k, saved_v})
    qkv[static_cast<std::size_t>(i)] = place({this, i, RowKind::sequence, LastReader::backward_input}, sizes_of_qkv(N));
  const Tensor latent = place({this, saved_latent, RowKind::local}, {L, options_.model.kv_lora_rank});
  norm_.save(pass, latent, is_dropped);
  Tensor q_latent;
  if (query_) {
    q_latent = place({this, saved_q_latent, RowKind::local}, {L, options_.model.q_lora_rank});
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
  context.ops.resize_rows({.x = out.reshaped({N, H, options_.model.head_dim}), .y = result.reshaped({N, H, V})});
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
