#include "nn/decoder_block.h"

#include <fmt/format.h>

namespace echelon {
namespace {

enum Kept : int { kept_attention_x, kept_h, kept_mlp_x };

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
  const Tensor attention_x = stash.keep(this, kept_attention_x, x.dtype, x.sizes);
  attention_norm_.forward(context, x, attention_x, stash);
  const Tensor h = stash.keep(this, kept_h, x.dtype, x.sizes);
  attention_.forward(context, attention_x, h, stash);
  context.ops.add(h, h, x);

  const Tensor mlp_x = stash.keep(this, kept_mlp_x, x.dtype, x.sizes);
  mlp_norm_.forward(context, h, mlp_x, stash);
  mlp_.forward(context, mlp_x, y, stash);
  context.ops.add(y, y, h);
}

void DecoderBlock::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor dh = context.workspace.take(dy.dtype, dy.sizes);
  const Tensor dbranch = context.workspace.take(dy.dtype, dy.sizes);  // of a branch's input
  mlp_.backward(context, dy, dbranch, stash);
  mlp_norm_.backward(context, dbranch, dh, stash);
  context.ops.add(dh, dh, dy);

  attention_.backward(context, dh, dbranch, stash);
  attention_norm_.backward(context, dbranch, dx, stash);
  context.ops.add(dx, dx, dh);
}

void DecoderBlock::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dh = context.workspace.take(dy.dtype, dy.sizes);
  const Tensor dbranch = context.workspace.take(dy.dtype, dy.sizes);
  mlp_.backward_input(context, dy, dbranch, stash);
  mlp_norm_.backward_input(context, dbranch, dh, stash);
  context.ops.add(dh, dh, dy);

  attention_.backward_input(context, dh, dbranch, stash);
  attention_norm_.backward_input(context, dbranch, dx, stash);
  context.ops.add(dx, dx, dh);
}

void DecoderBlock::backward_weight(Context& context, Stash& stash) {
  mlp_.backward_weight(context, stash);
  mlp_norm_.backward_weight(context, stash);
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
