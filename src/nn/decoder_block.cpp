#include "nn/decoder_block.h"

#include <fmt/format.h>

namespace echelon {
namespace {

enum Kept : int { kept_h };

std::string name_of_block(std::int64_t index) { return fmt::format("model.layers.{}.", index); }

}  // namespace

DecoderBlock::DecoderBlock(const LayerOptions& options, std::int64_t index, const RopeTables& rope)
    : options_(options),
      attention_norm_(Norm::of_tokens(options, name_of_block(index) + "input_layernorm")),
      attention_(options, name_of_block(index) + "self_attn", rope),
      mlp_norm_(Norm::of_tokens(options, name_of_block(index) + "post_attention_layernorm")),
      mlp_(options, name_of_block(index) + "mlp") {}

std::vector<Param*> DecoderBlock::params() {
  std::vector<Param*> params;
  for (Layer* layer : {static_cast<Layer*>(&attention_norm_), static_cast<Layer*>(&attention_), static_cast<Layer*>(&mlp_norm_), static_cast<Layer*>(&mlp_)})
    for (Param* param : layer->params()) params.push_back(param);
  return params;
}

void DecoderBlock::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes), h = stash.keep(this, kept_h, x.dtype, x.sizes);
  attention_norm_.forward(context, x, normed, stash);
  attention_.forward(context, normed, h, stash);
  mlp_norm_.residual_forward(context, h, x, normed, stash);
  mlp_.forward(context, normed, y, stash);
  context.ops.add(y, y, h);
}

void DecoderBlock::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(dy.dtype, dy.sizes),
               dnormed = normed;  // a branch reads its input for the last time before it writes its gradient
  const Tensor dh = dx;
  mlp_norm_.normalise(context, normed, stash);
  mlp_.set_x(stash, normed);
  mlp_.backward(context, dy, dnormed, stash);
  mlp_norm_.residual_backward(context, dnormed, dy, dh, stash);

  attention_norm_.normalise(context, normed, stash);
  attention_.set_x(stash, normed);
  attention_.backward(context, dh, dnormed, stash);
  attention_norm_.residual_backward(context, dnormed, dh, dx, stash);
}

void DecoderBlock::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dnormed = context.workspace.take(dy.dtype, dy.sizes), dh = dx;
  mlp_.backward_input(context, dy, dnormed, stash);
  mlp_norm_.residual_backward_input(context, dnormed, dy, dh, stash);
  attention_.backward_input(context, dh, dnormed, stash);
  attention_norm_.residual_backward_input(context, dnormed, dh, dx, stash);
}

void DecoderBlock::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(options_.dtype, {options_.num_local_tokens(), options_.model.hidden_size});
  mlp_norm_.normalise(context, normed, stash);
  mlp_.set_x(stash, normed);
  mlp_.backward_weight(context, stash);
  mlp_norm_.backward_weight(context, stash);

  attention_norm_.normalise(context, normed, stash);
  attention_.set_x(stash, normed);
  attention_.backward_weight(context, stash);
  attention_norm_.backward_weight(context, stash);
}

void DecoderBlock::decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const {
  const Stack::Scope scope(context.workspace);
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  const Tensor h = context.workspace.take(x.dtype, x.sizes);
  attention_norm_.apply(context, x, normed);
  attention_.decode(context, normed, h, cache, first_position);
  context.ops.add(h, h, x);
  mlp_norm_.apply(context, h, normed);
  mlp_.apply(context, normed, y);
  context.ops.add(y, y, h);
}

}  // namespace echelon
