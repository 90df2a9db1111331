#include "nn/decoder_block.h"

#include <fmt/format.h>

namespace echelon {
namespace {

enum Kept : int { kept_x, kept_h };

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
  for (Layer* layer : {static_cast<Layer*>(&attention_norm_), static_cast<Layer*>(&attention_),
                       static_cast<Layer*>(&mlp_norm_), static_cast<Layer*>(&mlp_)})
    for (Param* param : layer->params()) params.push_back(param);
  return params;
}

void DecoderBlock::forward(Context& context, Tensor x, Tensor y, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Forming forming = {context, stash};
  const Tensor normed = context.workspace.take(x.dtype, x.sizes);
  stash.keep_view(this, kept_x, x);
  const Tensor h = place_h(forming);
  {
    const Stack::Scope attention(context.workspace);
    form_attention(forming, normed);
    attention_.project(context, h, stash);
  }
  mlp_norm_.residual_normalise(context, x, normed, stash);
  mlp_.forward(context, normed, y, stash);
  context.ops.add(y, y, h);
}

void DecoderBlock::backward(Context& context, Tensor dy, Tensor dx, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Forming again = {context, stash, Pass::backward};
  const Tensor normed = context.workspace.take(dy.dtype, dy.sizes),
               dnormed = normed;  // a branch reads its input for the last time before it writes its gradient
  const Tensor dh = dx;
  form_h_again(again, normed);
  {
    const Stack::Scope mlp(context.workspace);
    mlp_.form(again, normed);
    mlp_.backward(context, dy, dnormed, stash);
  }
  mlp_norm_.residual_backward(context, dnormed, dy, dh, stash);
  if (!drops(BlockOperation::o_proj)) form_attention(again, normed);
  attention_.backward(context, dh, dnormed, stash);
  attention_norm_.residual_backward(context, dnormed, dh, dx, stash);
}

void DecoderBlock::backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Forming again = {context, stash, Pass::backward_input};
  const Tensor normed = context.workspace.take(dy.dtype, dy.sizes), dnormed = normed, dh = dx;
  form_h_again(again, normed);
  {
    const Stack::Scope mlp(context.workspace);
    mlp_.form(again, normed);
    mlp_.backward_input(context, dy, dnormed, stash);
  }
  mlp_norm_.residual_backward_input(context, dnormed, dy, dh, stash);
  if (!drops(BlockOperation::o_proj)) form_attention(again, normed);
  attention_.backward_input(context, dh, dnormed, stash);
  attention_norm_.residual_backward_input(context, dnormed, dh, dx, stash);
}

Tensor DecoderBlock::place_h(const Forming& forming) const {
  const Tensor x = forming.stash.kept(this, kept_x);
  const bool drops_h = drops(BlockOperation::o_proj);
  const Tensor h = forming.place({this, kept_h, drops_h, LastReader::backward_weight}, x.dtype, x.sizes);
  mlp_norm_.keep(
      forming, h,
      drops_h || drops(BlockOperation::mlp));  // whoever forms h or the branch again forms the statistics on the way
  return h;
}

void DecoderBlock::form_attention(const Forming& forming, Tensor normed) const {
  auto& [context, stash, pass] = forming;
  const bool projects = forming.runs(drops(BlockOperation::qkv_proj));
  attention_norm_.keep(forming, stash.kept(this, kept_x), drops(BlockOperation::qkv_proj));
  if (projects || pass == Pass::backward) attention_norm_.normalise(context, normed, stash);
  attention_.form(forming, normed);
}

void DecoderBlock::form_h_again(const Forming& again, Tensor normed) const {
  auto& [context, stash, pass] = again;
  const Tensor h = place_h(again);
  if (drops(BlockOperation::o_proj)) {
    form_attention(
        again, context.workspace.take(h.dtype,
                                      h.sizes));  // a norm of x of its own, which lasts until attention's backward pass
    attention_.project(context, h, stash);
    mlp_norm_.residual_normalise(context, stash.kept(this, kept_x), normed, stash);
  } else if (pass == Pass::backward || drops(BlockOperation::mlp)) {
    mlp_norm_.normalise(context, normed, stash);
  }
}

void DecoderBlock::backward_weight(Context& context, Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor normed =
      context.workspace.take(options_.dtype, {options_.num_local_tokens(), options_.model.hidden_size});
  mlp_norm_.normalise(context, normed, stash);
  mlp_.set_x(stash, normed);
  mlp_.backward_weight(context, stash);
  mlp_norm_.backward_weight(context, stash);

  attention_norm_.normalise(context, normed, stash);
  attention_.set_x(stash, normed);
  attention_.backward_weight(context, stash);
  attention_norm_.backward_weight(context, stash);
}

void DecoderBlock::decode(Context& context, Tensor x, Tensor y, const KvCache& cache,
                          std::int64_t first_position) const {
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
