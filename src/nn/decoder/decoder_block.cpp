#include "nn/decoder/decoder_block.h"

#include "nn/decoder/attention.h"
#include "nn/decoder/mixture.h"
#include "nn/decoder/mlp.h"

#include <fmt/format.h>

namespace echelon {
namespace {

std::string name_of_block(std::int64_t index) { return fmt::format("model.layers.{}.", index); }

std::unique_ptr<Branch> feed_forward(const LayerOptions& options, const std::string& name) {
  if (options.has_experts) return std::make_unique<Mixture>(options, name);
  return std::make_unique<Mlp>(options, name);
}

}  // namespace

DecoderBlock::DecoderBlock(const LayerOptions& options, std::int64_t index, const RopeTables& rope)
    : options_(options),
      sublayers_{{{Norm::of_tokens(options, name_of_block(index) + "input_layernorm"),
                   std::make_unique<Attention>(options, name_of_block(index) + "self_attn", rope)},
                  {Norm::of_tokens(options, name_of_block(index) + "post_attention_layernorm"),
                   feed_forward(options, name_of_block(index) + "mlp")}}} {}

std::vector<Param*> DecoderBlock::params() {
  std::vector<Param*> params;
  for (auto& [norm, branch] : sublayers_)
    for (Layer* layer : {static_cast<Layer*>(&norm), static_cast<Layer*>(branch.get())})
      for (Param* param : layer->params()) params.push_back(param);
  return params;
}

void DecoderBlock::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::forward};
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  stash.save_view(this, saved_x, x);
  const std::array<Tensor, 3> s = {x, place_stream(pass, 1), y};
  for (const std::size_t i : {0, 1}) {
    const Stack::Scope of_branch(context.workspace);
    compute(pass, i, normed);
    sublayers_[i].branch->project(context, s[i + 1], stash);
  }
  context.ops.add(s[2], s[2], s[1]);  // h has x since the norm of h
}

void DecoderBlock::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::backward};
  // dnormed is stored in normed, which a branch reads for the last time before it writes dnormed; dh is stored in dx.
  const Tensor normed = context.workspace.take(dy.dtype, dy.sizes), dnormed = normed;
  const std::array<Tensor, 3> ds = {dx, dx, dy};
  recompute_h(pass);
  for (const std::size_t i : {1, 0}) {
    const Stack::Scope of_branch(context.workspace);
    if (i > 0 || !drops_h()) compute(pass, i, normed);  // else recompute_h did
    sublayers_[i].branch->backward(context, ds[i + 1], dnormed, stash);
    sublayers_[i].norm.residual_backward(context, dnormed, ds[i + 1], ds[i], stash);
  }
}

void DecoderBlock::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const ComputePass pass = {context, stash, Pass::backward_input};
  const Tensor normed = context.workspace.take(dy.dtype, dy.sizes), dnormed = normed;
  const std::array<Tensor, 3> ds = {dx, dx, dy};
  recompute_h(pass);
  for (const std::size_t i : {1, 0}) {
    const Stack::Scope of_branch(context.workspace);
    if (i > 0 || !drops_h()) compute(pass, i, normed);
    sublayers_[i].branch->backward_input(context, ds[i + 1], dnormed, stash);
    sublayers_[i].norm.residual_backward_input(context, dnormed, ds[i + 1], ds[i], stash);
  }
}

void DecoderBlock::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed =
      context.workspace.take(options_.dtype, {options_.num_local_tokens(), options_.model.hidden_size});
  for (const std::size_t i : {1, 0}) {
    auto& [norm, branch] = sublayers_[i];
    norm.normalise(context, normed, stash);
    branch->save_x(stash, normed);
    branch->backward_weight(context, stash);
    norm.backward_weight(context, stash);
  }
}

Tensor DecoderBlock::place_stream(const ComputePass& pass, std::size_t i) const {
  const auto& [norm, branch] = sublayers_[i];
  const Tensor x = pass.stash.saved(this, saved_x);
  const bool is_dropped = i > 0 && drops_h();
  const Tensor s = i == 0 ? x : pass.place({this, saved_h, is_dropped, LastReader::backward_weight}, x.dtype, x.sizes);
  // A pass that recomputes s, or the branch from norm(s), also computes the statistics.
  norm.save(pass, s, is_dropped || branch->recomputes_from_x());
  return s;
}

void DecoderBlock::compute(const ComputePass& pass, std::size_t i, Tensor normed) const {
  const auto& [norm, branch] = sublayers_[i];
  if (i == 0) (void)place_stream(pass, i);  // h outlives branch 0, so it was placed before
  // A pass that computes h has the y of branch 0 there; the norm of h adds x.
  const Tensor residual = i > 0 && pass.runs(drops_h()) ? pass.stash.saved(this, saved_x) : Tensor();
  // The weights' gradients read normed too. After backward_input, backward_weight recomputes it.
  if (residual.exists() || pass.runs(branch->recomputes_from_x()) || pass.kind == Pass::backward)
    norm.normalise(pass.context, normed, pass.stash, residual);
  branch->compute(pass, normed);
}

void DecoderBlock::recompute_h(const ComputePass& pass) const {
  const Tensor h = place_stream(pass, 1);
  if (!drops_h()) return;
  // norm[0](x) must last until the backward pass of branch 0.
  compute(pass, 0, pass.context.workspace.take(h.dtype, h.sizes));
  sublayers_[0].branch->project(pass.context, h, pass.stash);
}

}  // namespace echelon
