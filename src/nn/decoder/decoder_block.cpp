#include "nn/decoder/decoder_block.h"

#include "nn/decoder/attention.h"
#include "nn/decoder/latent/latent_attention.h"
#include "nn/decoder/mixture.h"
#include "nn/decoder/mlp.h"
#include "nn/tensor_parallel.h"

#include <fmt/format.h>

#include <utility>

namespace echelon {
namespace {

std::string name_of_block(std::int64_t index) { return fmt::format("model.layers.{}.", index); }

std::unique_ptr<Branch> attention(const LayerOptions& options, const std::string& name, const RopeTables& rope) {
  if (options.model.has_latents()) return std::make_unique<LatentAttention>(options, name, rope);
  return std::make_unique<Attention>(options, name, rope);
}

std::unique_ptr<Branch> feed_forward(const LayerOptions& options, const std::string& name) {
  if (options.has_experts) return std::make_unique<Mixture>(options, name);
  return std::make_unique<Mlp>(options, name);
}

}  // namespace

DecoderBlock::DecoderBlock(const LayerOptions& options, std::int64_t index, const RopeTables& rope)
    : options_(options) {
  const std::string name = name_of_block(index);
  sublayers_ = {sublayer(0, name, attention(options, name + "self_attn", rope)),
                sublayer(1, name, feed_forward(options, name + "mlp"))};
}

// Hugging Face's names: with norms before the branches alone, that of the MLP is called after what is before it.
DecoderBlock::Sublayer DecoderBlock::sublayer(std::size_t i, const std::string& name,
                                              std::unique_ptr<Branch> branch) const {
  const NormPlacement placement = options_.model.norm_placement;
  Sublayer made = {.norm = {}, .branch = std::move(branch), .post_norm = {}};
  const char* const of_mlp =
      placement == NormPlacement::before ? "post_attention_layernorm" : "pre_feedforward_layernorm";
  if (placement != NormPlacement::after)
    made.norm.emplace(Norm::of_tokens(options_, name + (i == 0 ? "input_layernorm" : of_mlp)));
  if (placement != NormPlacement::before)
    made.post_norm.emplace(
        Norm::of_tokens(options_, name + (i == 0 ? "post_attention_layernorm" : "post_feedforward_layernorm")));
  return made;
}

std::vector<Param*> DecoderBlock::params() {
  std::vector<Param*> params;
  const auto append = [&](Layer& layer) {
    for (Param* param : layer.params()) params.push_back(param);
  };
  for (Sublayer& each : sublayers_) {
    if (each.norm) append(*each.norm);
    append(*each.branch);
    if (each.post_norm) append(*each.post_norm);
  }
  return params;
}

void DecoderBlock::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::forward};
  const Tensor normed = take_measured(context, x.sizes);
  stash.save_view(this, saved_x, x);
  const Tensor h = is_parallel() ? context.workspace.take(x.dtype, x.sizes) : place_stream(pass, 1);
  const std::array<Tensor, 3> s = {x, h, y};
  for (const std::size_t i : {0, 1}) {
    const Stack::Scope of_branch(context.workspace);
    compute(pass, i, normed);
    finish(pass, i, s[i + 1]);
  }
  if (is_parallel()) context.ops.add(s[1], s[1], x);
  context.ops.add(s[2], s[2], s[1]);  // h has x since the norm of h
}

void DecoderBlock::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::backward};
  const std::array<Tensor, 3> ds = {dx, measured(context, dx), dy};  // dh is stored in dx
  const Tensor recomputed = recompute_first(pass);
  for (const std::size_t i : {1, 0}) {
    const Stack::Scope of_branch(context.workspace);
    // dnormed is stored in normed, which a branch reads for the last time before it writes dnormed.
    const Tensor normed = compute_again(pass, i, recomputed), dnormed = normed.without_amax();
    auto& [norm, branch, post_norm] = sublayers_[i];
    const Tensor doutput = output_gradient(context, i, is_parallel() ? dy : ds[i + 1], [&](Tensor from, Tensor to) {
      sublayers_[i].post_norm->backward(context, from, to, stash);
    });
    branch->backward(context, doutput, dnormed, stash);
    if (norm)
      norm->residual_backward(context, dnormed, ds[i + 1], ds[i], stash);
    else
      context.ops.add(ds[i], ds[i + 1], dnormed);
  }
}

void DecoderBlock::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::backward_input};
  const std::array<Tensor, 3> ds = {dx, measured(context, dx), dy};
  const Tensor recomputed = recompute_first(pass);
  for (const std::size_t i : {1, 0}) {
    const Stack::Scope of_branch(context.workspace);
    const Tensor normed = compute_again(pass, i, recomputed), dnormed = normed.without_amax();
    const auto& [norm, branch, post_norm] = sublayers_[i];
    const Tensor doutput = output_gradient(context, i, is_parallel() ? dy : ds[i + 1], [&](Tensor from, Tensor to) {
      sublayers_[i].post_norm->backward_input(context, from, to, stash);
    });
    branch->backward_input(context, doutput, dnormed, stash);
    if (norm)
      norm->residual_backward_input(context, dnormed, ds[i + 1], ds[i], stash);
    else
      context.ops.add(ds[i], ds[i + 1], dnormed);
  }
}

void DecoderBlock::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = take_measured(context, {options_.num_local_tokens(), options_.model.hidden_size});
  for (const std::size_t i : {1, 0}) {
    auto& [norm, branch, post_norm] = sublayers_[i];
    if (norm) norm->normalise(context, normed, stash);
    branch->save_x(stash, norm ? normed : stream(i, stash));
    branch->backward_weight(context, stash);
    if (norm) norm->backward_weight(context, stash);
    if (post_norm) post_norm->backward_weight(context, stash);
  }
}

// Tokens that are gathered from other ranks have another largest magnitude.
Tensor DecoderBlock::take_measured(Context& context, const Sizes& sizes) const {
  const Tensor x = context.workspace.take(options_.dtype, sizes);
  return splits_tokens(options_) ? x : with_amax(context, options_, x);
}

// Without a norm before a branch a sum writes it.
Tensor DecoderBlock::measured(Context& context, Tensor dx) const {
  const bool is_of_norm = sublayers_[1].norm.has_value() && !splits_tokens(options_);
  return is_of_norm ? with_amax(context, options_, dx) : dx;
}

Tensor DecoderBlock::place_stream(const ComputePass& pass, std::size_t i) const {
  const auto& [norm, branch, post_norm] = sublayers_[i];
  const Tensor x = pass.stash.saved(this, saved_x);
  const bool is_h = i > 0 && !is_parallel(), is_dropped = is_h && drops_h();
  const Tensor s = is_h ? pass.place({this, saved_h, RowKind::local}, is_dropped, x.dtype, x.sizes) : x;
  // A pass that recomputes s, or the branch from norm(s), also computes the statistics.
  if (norm) norm->save(pass, s, is_dropped || branch->recomputes_from_x());
  return s;
}

void DecoderBlock::compute(const ComputePass& pass, std::size_t i, Tensor normed) const {
  const auto& [norm, branch, post_norm] = sublayers_[i];
  if (i == 0 || is_parallel()) (void)place_stream(pass, i);  // h outlives branch 0, so it was placed before
  if (post_norm) {
    const Tensor s = stream(i, pass.stash);
    const bool is_dropped = i == 0 && drops_h();
    const int which = saved_output_0 + static_cast<int>(i);
    post_norm->save(pass, pass.place({this, which, RowKind::local}, is_dropped, s.dtype, s.sizes), is_dropped);
  }
  // A pass that computes h has what branch 0 adds there; the norm of h adds x.
  const Tensor residual = i > 0 && !is_parallel() && pass.runs(drops_h()) ? pass.stash.saved(this, saved_x) : Tensor();
  // The weights' gradients read normed too. After backward_input, backward_weight recomputes it.
  const bool is_read_again = pass.kind == Pass::backward || branch->backward_input_reads_x();
  if (norm && (residual.exists() || pass.runs(branch->recomputes_from_x()) || is_read_again))
    norm->normalise(pass.context, normed, pass.stash, residual);
  if (!norm && residual.exists()) pass.context.ops.add(stream(i, pass.stash), stream(i, pass.stash), residual);
  branch->compute(pass, norm ? normed : stream(i, pass.stash));
}

void DecoderBlock::finish(const ComputePass& pass, std::size_t i, Tensor y) const {
  const auto& [norm, branch, post_norm] = sublayers_[i];
  const Tensor output = post_norm ? pass.stash.saved(this, saved_output_0 + static_cast<int>(i)) : y;
  branch->project(pass.context, output, pass.stash);
  if (post_norm) post_norm->normalise(pass.context, y, pass.stash);
  if (multiplier() != 1.0) pass.context.ops.scale(y, multiplier());
}

Tensor DecoderBlock::recompute_first(const ComputePass& pass) const {
  if (!drops_h()) return {};
  const Tensor normed = take_measured(pass.context, pass.stash.saved(this, saved_x).sizes);
  compute(pass, 0, normed);
  return normed;
}

Tensor DecoderBlock::compute_again(const ComputePass& pass, std::size_t i, Tensor recomputed) const {
  if (i == 0 && drops_h()) return recomputed;
  if (i > 0 && !is_parallel()) {
    const Tensor h = place_stream(pass, 1);
    if (drops_h()) finish(pass, 0, h);
  }
  const Tensor normed = take_measured(pass.context, pass.stash.saved(this, saved_x).sizes);
  compute(pass, i, normed);
  return normed;
}

template <class Through>
Tensor DecoderBlock::output_gradient(Context& context, std::size_t i, Tensor dy, const Through& through) const {
  Tensor gradient = dy;
  if (multiplier() != 1.0) {
    gradient = context.workspace.take(dy.dtype, dy.sizes);
    context.ops.copy(gradient, dy);
    context.ops.scale(gradient, multiplier());
  }
  if (!sublayers_[i].post_norm) return gradient;
  const Tensor of_output = take_measured(context, dy.sizes);
  through(gradient, of_output);
  return of_output;
}

}  // namespace echelon
