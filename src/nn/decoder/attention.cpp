#include "nn/decoder/attention.h"

#include "nn/attention_projections.h"
#include "nn/tensor_parallel.h"

namespace echelon {
Attention::Attention(const LayerOptions& options, const std::string& name, const RopeTables& rope)
    : options_(options),
      name_(name),
      split_(head_split(options.model, options.tp, options.tp_rank)),
      rope_(rope),
      projections_(qkv_projections(options, name, split_)),
      core_(make_attention_core(options, split_)),
      output_(output_projection(options, name, split_)) {
  if (options.model.qk_norm_of_projection)
    norms_ = norms_of_projections(options, name, split_);
  else if (options.model.qk_norm)
    norms_ = {Norm::of_heads(options, name + ".q_norm"), Norm::of_heads(options, name + ".k_norm")};
}

std::vector<Param*> Attention::params() {
  std::vector<Param*> params = projections_.params();
  const auto append = [&](const std::vector<Param*>& more) { params.insert(params.end(), more.begin(), more.end()); };
  for (Norm& norm : norms_) append(norm.params());
  append(output_.params());
  return params;
}

void Attention::compute(const ComputePass& pass, Tensor x) const {
  const Qkv qkv = heads_BTHC(compute_qkv(pass, x));
  pass.context.mesh.enter_layer(name_);
  core_->compute(pass, qkv);
  pass.context.mesh.leave_layer();
}

void Attention::project(Context& context, Tensor y, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  LinearOperand of_out = output_.operand(context, core_->out(stash), Float8Order::as_is);
  of_out.rounded.finds_amax = of_out.x.has_amax && !context.is_backward;
  output_.forward(context, of_out, y);
}

Qkv Attention::compute_qkv(const ComputePass& pass, Tensor x) const {
  const bool drops_products = drops(BlockOperation::qkv_proj),
             drops_qk = norms_.empty() ? drops_products : drops(BlockOperation::qk_norm);
  const auto place = [&](int which, std::size_t i, bool is_dropped, LastReader last_reader) {
    return pass.place({this, which, RowKind::sequence, last_reader}, is_dropped, options_.dtype,
                      sizes_of(i, options_.num_tokens()));
  };
  const Qkv qkv = {place(saved_q, 0, drops_qk, LastReader::backward_input),
                   place(saved_k, 1, drops_qk, LastReader::backward_input),
                   place(saved_v, 2, drops_products, LastReader::backward_input)};
  Qkv products = qkv;  // without norms, q and k are rotated where they were projected
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    products[i] = place(saved_q_product + static_cast<int>(i), i, drops_products, LastReader::backward_weight);
    norms_[i].save(pass, norm_rows(products[i]), drops_qk);
  }
  compute_first(pass, projections_, x, products);
  if (pass.runs(drops_products)) clip(pass.context, qkv[2]);
  if (!pass.runs(drops_qk)) return qkv;
  for (const std::size_t i : {0, 1}) {
    if (!norms_.empty()) norms_[i].normalise(pass.context, norm_rows(qkv[i]), pass.stash);
    clip(pass.context, qkv[i]);
    rotate(pass.context, i, heads_BTHC(qkv[i], options_.num_sequences), false, 0);
  }
  return qkv;
}

void Attention::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const auto save = [&](int which, const Sizes& sizes) {
    return stash.save_gradient({this, which, RowKind::sequence}, options_.dtype, sizes);
  };
  const std::int64_t N = options_.num_tokens();
  const Tensor dy_full = save(saved_dy, {N, options_.model.hidden_size});
  const Qkv dqkv =
      measured({save(saved_dq, sizes_of(0, N)), save(saved_dk, sizes_of(1, N)), save(saved_dv, sizes_of(2, N))},
               stash.save_gradient({this, saved_amaxes, RowKind::none}, DType::float32, amax_sizes()));
  gather_tokens_into(context, options_, dy_full, dy);
  {
    const Stack::Scope scope(context.workspace);
    LinearOperand of_dy = output_.operand(context, dy_full, Float8Order::as_is);
    const Qkv dnormed = backward_to_norms(context, of_dy, dqkv, stash);
    for (std::size_t i = 0; i < norms_.size(); ++i)
      norms_[i].backward_input(context, norm_rows(dnormed[i]), norm_rows(dqkv[i]), stash);
  }
  projections_.backward_input(context, dqkv, dx);
}

void Attention::backward_weight(Context& context, Stash& stash) {
  output_.backward_weight(context, stash.saved(this, saved_dy), core_->out(stash));
  for (Norm& norm : norms_) norm.backward_weight(context, stash);
  const Qkv dqkv = measured({stash.saved(this, saved_dq), stash.saved(this, saved_dk), stash.saved(this, saved_dv)},
                            stash.saved(this, saved_amaxes));
  projections_.backward_weight(context, dqkv, saved_x(stash));
}

void Attention::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Qkv dqkv = measured(take_qkv(context.workspace, options_.num_tokens()),
                            context.workspace.take(DType::float32, amax_sizes()));
  {
    const Stack::Scope inner(context.workspace);
    LinearOperand of_dy = output_.gradient_operand(context, leave_backward(context, options_, dy));
    output_.backward_weight(context, of_dy, core_->out(stash));
    const Qkv dnormed = backward_to_norms(context, of_dy, dqkv, stash);
    for (std::size_t i = 0; i < norms_.size(); ++i)
      norms_[i].backward(context, norm_rows(dnormed[i]), norm_rows(dqkv[i]), stash);
  }
  projections_.backward(context, dqkv, saved_x(stash), dx);
}

Qkv Attention::backward_to_norms(Context& context, LinearOperand& dy_full, const Qkv& dqkv, const Stash& stash) const {
  const Qkv dnormed = place_norm_outputs(context.workspace, dqkv), by_heads = heads_BTHC(dnormed);
  const Qkv qkv = {stash.saved(this, saved_q), stash.saved(this, saved_k), stash.saved(this, saved_v)};
  const Stack::Scope scope(context.workspace);
  const AttentionCore::OutGradient of_out = core_->take_out_gradient(context.workspace, stash);
  output_.backward_input(context, dy_full, of_out.dout);
  context.mesh.enter_layer(name_);
  core_->backward(context, heads_BTHC(qkv), of_out,
                  {by_heads[0].without_amax(), by_heads[1].without_amax(), by_heads[2]}, stash);
  context.mesh.leave_layer();
  for (const std::size_t i : {0, 1}) rotate(context, i, by_heads[i], true, 0);
  if (options_.model.clip_qkv > 0) clip_backward(context, dnormed, stash);
  return dnormed;
}

void Attention::clip_backward(Context& context, const Qkv& d, const Stash& stash) const {
  const double limit = options_.model.clip_qkv;
  context.ops.clip_backward({.dx = d[2], .x = stash.saved(this, saved_v), .limit = limit});
  for (const std::size_t i : {0, 1}) {
    const Stack::Scope scope(context.workspace);
    const Tensor x = context.workspace.take(d[i].dtype, d[i].sizes);
    norms_[i].normalise(context, norm_rows(x), stash);
    context.ops.clip_backward({.dx = d[i], .x = x, .limit = limit});
  }
}

Sizes Attention::sizes_of(std::size_t i, std::int64_t num_tokens) const {
  return {num_tokens, (i == 0 ? split_.num_heads : split_.num_kv_heads) * options_.model.head_dim};
}

Tensor Attention::norm_rows(Tensor x) const {
  if (options_.model.qk_norm_of_projection) return x;
  const std::int64_t C = options_.model.head_dim;
  return x.reshaped({x.num_elements() / C, C});
}

Tensor Attention::heads_BTHC(Tensor x, std::int64_t num_sequences) const {
  const std::int64_t C = options_.model.head_dim;
  return x.reshaped({num_sequences, x.size(0) / num_sequences, x.size(1) / C, C});
}

Qkv Attention::heads_BTHC(const Qkv& qkv) const {
  const std::int64_t B = options_.num_sequences;
  return {heads_BTHC(qkv[0], B), heads_BTHC(qkv[1], B), heads_BTHC(qkv[2], B)};
}

Qkv Attention::take_qkv(Stack& workspace, std::int64_t num_tokens) const {
  Qkv qkv;
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = workspace.take(options_.dtype, sizes_of(i, num_tokens));
  return qkv;
}

// What writes dq and dk last finds their largest magnitudes: their norms, or the rotation of whole heads.
Qkv Attention::measured(const Qkv& dqkv, const Tensor& places) const {
  const bool rotates_whole_heads = options_.model.position == PositionKind::rope && options_.has_rope &&
                                   options_.model.rotary_dim() == options_.model.head_dim &&
                                   options_.model.clip_qkv == 0;
  if (!options_.is_float8 || (norms_.empty() && !rotates_whole_heads)) return dqkv;
  return {dqkv[0].with_amax(places.rows(0, 1)), dqkv[1].with_amax(places.rows(1, 1)), dqkv[2]};
}

Qkv Attention::place_norm_outputs(Stack& workspace, const Qkv& qkv) const {
  Qkv across = qkv;
  for (std::size_t i = 0; i < norms_.size(); ++i) across[i] = workspace.take(qkv[i].dtype, qkv[i].sizes);
  return across;
}

void Attention::rotate(Context& context, std::size_t which, Tensor x_BTHC, bool inverse,
                       std::int64_t first_position) const {
  const RopeTables& rope = which == 0 && rope_.of_queries != nullptr ? *rope_.of_queries : rope_;
  rotate_heads(context, options_, rope, {.x_BTHC = x_BTHC, .inverse = inverse, .first_position = first_position});
}

}  // namespace echelon
