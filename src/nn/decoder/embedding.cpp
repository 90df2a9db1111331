#include "nn/decoder/embedding.h"

#include "nn/sharding.h"
#include "nn/tensor_parallel.h"

namespace echelon {
Embedding::Embedding(const LayerOptions& options, Param* tied_weight) : options_(options), weight_(tied_weight) {
  const ModelSpec& model = options.model;
  if (weight_ == nullptr) weight_ = &own_weight_.emplace(vocabulary_matrix(options, "model.embed_tokens.weight"));
  if (model.position != PositionKind::learned) return;
  positions_ = replicated(options, "model.embed_positions.weight", {model.max_position_embeddings, model.hidden_size});
  positions_->init_std = model.initializer_range;
}

std::vector<Param*> Embedding::params() {
  std::vector<Param*> params;
  if (own_weight_) params.push_back(&*own_weight_);
  if (positions_) params.push_back(&*positions_);
  return params;
}

void Embedding::forward(Context& context, Tensor /*x*/, Tensor y, Stash& /*stash*/) const {
  look_up(context, context.microbatch.tokens, y);
  if (positions_)
    context.ops.add_positions({.w = positions_->value,
                               .y = y,
                               .seq_len = options_.seq_len,
                               .first_token = first_token(),
                               .positions = context.microbatch.positions});
}

void Embedding::backward_input(Context& context, Tensor dy, Tensor /*dx*/, Stash& stash) const {
  if (trains()) context.ops.copy(stash.save_gradient({this, saved_dy, RowKind::local}, dy.dtype, dy.sizes), dy);
}

void Embedding::backward_weight(Context& context, Stash& stash) {
  if (trains()) weight_gradient(context, stash.saved(this, saved_dy));
}

void Embedding::backward(Context& context, Tensor dy, Tensor /*dx*/, Stash& /*stash*/) {
  if (trains()) weight_gradient(context, dy);
}

void Embedding::decode(Context& context, Tensor tokens, Tensor y, std::int64_t num_sequences,
                       std::int64_t first_position) const {
  look_up(context, tokens, y);
  if (!positions_) return;
  const std::int64_t num_new = y.size(0) / num_sequences;
  for (std::int64_t b = 0; b < num_sequences; ++b)
    context.ops.add_positions({.w = positions_->value,
                               .y = y.rows(b * num_new, num_new),
                               .seq_len = options_.seq_len,
                               .first_token = first_position});
}

void Embedding::look_up(Context& context, Tensor tokens, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, options_, y);
  context.ops.embedding(
      {.tokens = tokens, .w = weight_->value, .y = partial, .first_row = weight_->slice.entries(0).first});
  leave(context, options_, y, partial);
  if (options_.model.embedding_multiplier != 1.0) context.ops.scale(y, multiplier());
}

void Embedding::weight_gradient(Context& context, Tensor dy) {
  if (positions_ && positions_->trains)
    context.ops.positions_backward({.dy = dy,
                                    .dw = positions_->grad,
                                    .seq_len = options_.seq_len,
                                    .first_token = first_token(),
                                    .positions = context.microbatch.positions});
  if (!weight_->trains) return;
  const Stack::Scope scope(context.workspace);
  Tensor of_rows = dy;
  if (options_.model.embedding_multiplier != 1.0) {
    of_rows = context.workspace.take(dy.dtype, dy.sizes);
    context.ops.copy(of_rows, dy);
    context.ops.scale(of_rows, multiplier());
  }
  const Tensor dy_full = leave_backward(context, options_, of_rows);
  context.ops.embedding_backward({.tokens = context.microbatch.tokens,
                                  .dy = dy_full,
                                  .dw = weight_->grad,
                                  .first_row = weight_->slice.entries(0).first});
}

double Embedding::multiplier() const {
  const double wanted = options_.model.embedding_multiplier;
  if (!options_.model.rounds_embedding_multiplier) return wanted;
  switch (options_.dtype) {
    case DType::float32: return static_cast<float>(wanted);
    case DType::bfloat16: return to<double>(to<bfloat16>(wanted));
    case DType::float16: return to<double>(to<float16>(wanted));
    case DType::float64:
    case DType::int32:
    case DType::int16: break;
  }
  return wanted;
}

std::int64_t Embedding::first_token() const {
  return splits_tokens(options_) ? options_.tp_rank * options_.num_local_tokens() : 0;
}

}  // namespace echelon
