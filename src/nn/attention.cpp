#include "nn/attention.h"

#include "nn/sharding.h"
#include "nn/tensor_parallel.h"

#include <cmath>

namespace echelon {
namespace {

enum Kept : int {
  kept_x,
  kept_q_product,
  kept_k_product,
  kept_q,
  kept_k,
  kept_v,
  kept_out,
  kept_lse,
  kept_dy,
  kept_dq,
  kept_dk,
  kept_dv
};

Linear query_projection(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const ModelSpec& model = options.model;
  const std::int64_t C = model.head_dim;
  const Slice rows = {split.first_head * C, split.num_heads * C};
  Linear linear(options, row_slice_of_matrix(options, name + ".weight",
                                             {model.num_attention_heads * C, model.hidden_size}, rows));
  if (model.qkv_bias) linear.set_bias(slice_of_bias(name + ".bias", model.num_attention_heads * C, rows));
  return linear;
}

// Of keys or values. Each of the ranks that hold a kv head has the part of its gradient that comes from its own query
// heads.
Linear kv_projection(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const ModelSpec& model = options.model;
  const std::int64_t C = model.head_dim;
  const Slice rows = {split.first_kv_head * C, split.num_kv_heads * C};
  const auto shared = [&](Param param) {
    if (split.kv_replicas > 1) param.replica_sum = ReplicaSum::kv_replicas;
    param.is_first_copy = split.kv_replica == 0;
    return param;
  };
  Linear linear(options, shared(row_slice_of_matrix(options, name + ".weight",
                                                    {model.num_key_value_heads * C, model.hidden_size}, rows)));
  if (model.qkv_bias) linear.set_bias(shared(slice_of_bias(name + ".bias", model.num_key_value_heads * C, rows)));
  return linear;
}

RowParallel output_projection(const LayerOptions& options, const std::string& name, const HeadSplit& split) {
  const std::int64_t C = options.model.head_dim;
  return row_parallel(options, name, options.model.num_attention_heads * C,
                      {split.first_head * C, split.num_heads * C});
}

}  // namespace

Attention::Attention(const LayerOptions& options, const std::string& name, const RopeTables& rope)
    : options_(options),
      split_(head_split(options.model, options.tp, options.tp_rank)),
      rope_(rope),
      projections_(options, {query_projection(options, name + ".q_proj", split_),
                             kv_projection(options, name + ".k_proj", split_),
                             kv_projection(options, name + ".v_proj", split_)}),
      output_(output_projection(options, name + ".o_proj", split_)) {
  if (options.model.qk_norm)
    norms_ = {Norm::of_heads(options, name + ".q_norm"), Norm::of_heads(options, name + ".k_norm")};
}

std::vector<Param*> Attention::params() {
  std::vector<Param*> params = projections_.params();
  const auto append = [&](const std::vector<Param*>& more) { params.insert(params.end(), more.begin(), more.end()); };
  if (norms_)
    for (Norm& norm : *norms_) append(norm.params());
  append(output_.params());
  return params;
}

void Attention::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  form({context, stash}, x);
  project(context, y, stash);
}

void Attention::form(const Forming& forming, Tensor x) const {
  const Projections qkv = form_projections(forming, x);
  const bool is_dropped = drops(BlockOperation::core_attn);
  const Tensor out = forming.place({this, kept_out, is_dropped, LastReader::backward_weight}, options_.dtype,
                                   projection_sizes(options_.num_tokens())[0]);
  const Tensor lse = forming.place({this, kept_lse, is_dropped}, accumulate_dtype(options_.dtype),
                                   {options_.num_sequences, split_.num_heads, options_.seq_len});
  if (forming.runs(is_dropped))
    attend(forming.context.ops, qkv, out.reshaped(qkv[0].sizes), lse, mask(forming.context.microbatch));
}

Attention::Projections Attention::form_projections(const Forming& forming, Tensor x) const {
  auto& [context, stash, pass] = forming;
  const std::array<Sizes, 3> sizes = projection_sizes(options_.num_tokens());
  const bool drops_products = drops(BlockOperation::qkv_proj),
             drops_q_and_k = norms_ ? drops(BlockOperation::qk_norm) : drops_products;
  const Projections qkv = {forming.place({this, kept_q, drops_q_and_k}, options_.dtype, sizes[0]),
                           forming.place({this, kept_k, drops_q_and_k}, options_.dtype, sizes[1]),
                           forming.place({this, kept_v, drops_products}, options_.dtype, sizes[2])};
  Projections products = qkv;
  if (norms_)
    for (std::size_t i = 0; i < 2; ++i) {
      const int which = i == 0 ? kept_q_product : kept_k_product;
      products[i] = forming.place({this, which, drops_products, LastReader::backward_weight}, options_.dtype, sizes[i]);
      (*norms_)[i].keep(forming, per_head(products[i]), drops_q_and_k);
    }
  set_x(stash, x);
  if (forming.runs(drops_products)) {
    if (pass == Pass::forward)
      projections_.forward(context, x, products);
    else
      set_x(stash, projections_.forward_again(context, x, products));
  }
  const Projections heads = {qkv[0].reshaped(head_sizes(split_.num_heads)),
                             qkv[1].reshaped(head_sizes(split_.num_kv_heads)),
                             qkv[2].reshaped(head_sizes(split_.num_kv_heads))};
  if (!forming.runs(drops_q_and_k)) return heads;
  for (std::size_t i = 0; i < 2; ++i) {
    if (norms_) (*norms_)[i].normalise(context, per_head(qkv[i]), stash);
    rotate(context.ops, heads[i], false, 0);
  }
  return heads;
}

void Attention::project(Context& context, Tensor y, const Stash& stash) const {
  output_.forward(context, stash.kept(this, kept_out), y);
}

void Attention::set_x(Stash& stash, Tensor x) const { stash.keep_view(this, kept_x, x); }

void Attention::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const std::array<Sizes, 3> sizes = projection_sizes(options_.num_tokens());
  const Tensor dy_full =
      stash.keep_gradient(this, kept_dy, options_.dtype, {options_.num_tokens(), options_.model.hidden_size});
  const Projections gradients = {stash.keep_gradient(this, kept_dq, options_.dtype, sizes[0]),
                                 stash.keep_gradient(this, kept_dk, options_.dtype, sizes[1]),
                                 stash.keep_gradient(this, kept_dv, options_.dtype, sizes[2])};
  gather_tokens_into(context, options_, dy_full, dy);
  {
    const Stack::Scope scope(context.workspace);
    const Projections behind_norms = take_across_norms(context.workspace, gradients);
    attention_gradients(context, dy_full, behind_norms, stash);
    if (norms_)
      for (std::size_t i = 0; i < 2; ++i)
        (*norms_)[i].backward_input(context, per_head(behind_norms[i]), per_head(gradients[i]), stash);
  }
  projections_.backward_input(context, gradients, dx);
}

void Attention::backward_weight(Context& context, Stash& stash) {
  output_.backward_weight(context, stash.kept(this, kept_dy), stash.kept(this, kept_out));
  if (norms_)
    for (Norm& norm : *norms_) norm.backward_weight(context, stash);
  const Projections gradients = {stash.kept(this, kept_dq), stash.kept(this, kept_dk), stash.kept(this, kept_dv)};
  projections_.backward_weight(context, gradients, stash.kept(this, kept_x));
}

void Attention::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Projections gradients = take_projections(context.workspace, options_.num_tokens());
  {
    const Stack::Scope inner(context.workspace);
    const Tensor dy_full = leave_backward(context, options_, dy);
    output_.backward_weight(context, dy_full, stash.kept(this, kept_out));
    const Projections behind_norms = take_across_norms(context.workspace, gradients);
    attention_gradients(context, dy_full, behind_norms, stash);
    if (norms_)
      for (std::size_t i = 0; i < 2; ++i)
        (*norms_)[i].backward(context, per_head(behind_norms[i]), per_head(gradients[i]), stash);
  }
  projections_.backward_weight(context, gradients, stash.kept(this, kept_x));
  projections_.backward_input(context, gradients, dx);
}

void Attention::attention_gradients(Context& context, Tensor dy_full, const Projections& gradients,
                                    const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Sizes q_sizes = head_sizes(split_.num_heads), kv_sizes = head_sizes(split_.num_kv_heads);
  const Tensor dout = context.workspace.take(options_.dtype, gradients[0].sizes);
  const Tensor lse = stash.kept(this, kept_lse);
  const Tensor delta = context.workspace.take(lse.dtype, lse.sizes);
  output_.backward_input(context, dy_full, dout);
  const Tensor dq = gradients[0].reshaped(q_sizes), dk = gradients[1].reshaped(kv_sizes),
               dv = gradients[2].reshaped(kv_sizes);
  const Tensor q = stash.kept(this, kept_q).reshaped(q_sizes), k = stash.kept(this, kept_k).reshaped(kv_sizes);
  const bool gives_scratch =
      options_.gives_attention_scratch && split_.kv_replicas == 1;  // kv heads that ranks share are no part of a group
  context.ops.attention_backward(
      {.q = q,
       .k = k,
       .v = stash.kept(this, kept_v).reshaped(kv_sizes),
       .out = stash.kept(this, kept_out).reshaped(q_sizes),
       .lse = lse,
       .dout = dout.reshaped(q_sizes),
       .dq = dq,
       .dk = dk,
       .dv = dv,
       .delta = delta,
       .scale = scale(),
       .group = group(),
       .first_head = split_.head_in_group,
       .mask = mask(context.microbatch),
       .scratch = gives_scratch ? context.workspace.take(DType::int32, {attention_scratch_size(q, k)}) : Tensor()});
  rotate(context.ops, dq, true, 0);
  rotate(context.ops, dk, true, 0);
}

std::array<Sizes, 3> Attention::projection_sizes(std::int64_t num_tokens) const {
  const std::int64_t C = options_.model.head_dim;
  return {Sizes{num_tokens, split_.num_heads * C}, Sizes{num_tokens, split_.num_kv_heads * C},
          Sizes{num_tokens, split_.num_kv_heads * C}};
}

Attention::Projections Attention::take_projections(Stack& workspace, std::int64_t num_tokens) const {
  Projections taken;
  const std::array<Sizes, 3> sizes = projection_sizes(num_tokens);
  for (std::size_t i = 0; i < taken.size(); ++i) taken[i] = workspace.take(options_.dtype, sizes[i]);
  return taken;
}

Attention::Projections Attention::take_across_norms(Stack& workspace, const Projections& tensors) const {
  if (!norms_) return tensors;
  return {workspace.take(options_.dtype, tensors[0].sizes), workspace.take(options_.dtype, tensors[1].sizes),
          tensors[2]};
}

std::int64_t Attention::group() const {
  return options_.model.num_attention_heads / options_.model.num_key_value_heads;
}

double Attention::scale() const { return 1.0 / std::sqrt(static_cast<double>(options_.model.head_dim)); }

void Attention::rotate(Ops& ops, Tensor x_BTHC, bool inverse, std::int64_t first_position) const {
  if (options_.model.position != PositionKind::rope) return;
  ops.rope({.x = x_BTHC,
            .y = x_BTHC,
            .cos = rope_.cos,
            .sin = rope_.sin,
            .inverse = inverse,
            .first_position = first_position});
}

void Attention::attend(Ops& ops, const Projections& qkv_BTHC, Tensor out, Tensor lse, const AttentionMask& mask) const {
  ops.attention({.q = qkv_BTHC[0],
                 .k = qkv_BTHC[1],
                 .v = qkv_BTHC[2],
                 .out = out,
                 .lse = lse,
                 .scale = scale(),
                 .group = group(),
                 .first_head = split_.head_in_group,
                 .mask = mask});
}

AttentionMask Attention::mask(const Microbatch& microbatch) const {
  const Tensor& starts = microbatch.document_starts;
  return {.starts = starts.exists() ? starts.reshaped({options_.num_sequences, options_.seq_len}) : Tensor()};
}

}  // namespace echelon
