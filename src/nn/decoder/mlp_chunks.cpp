// The feed-forward branch in chunks of tokens: no tensor [num_tokens, F] exists in any pass. Forward saves nothing for
// backward, and each backward pass recomputes gate and up of a chunk from x. Tokens are gathered and partial sums
// reduced once, not by chunk: what is sent does not depend on the chunks.
#include "nn/decoder/mlp.h"
#include "nn/tensor_parallel.h"

namespace echelon {

std::vector<TokenChunk> Mlp::chunks() const {
  return token_chunks(options_.num_tokens(), options_.mlp_chunk.max_tokens, options_.mlp_chunk.multiple);
}

// The partial sums of a chunk are stored where its rows of gathered tokens were, which it was the last to read.

void Mlp::project_chunks(Context& context, Tensor y, const Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor x_full = enter(context, options_, saved_x(stash)), partial = splits_tokens(options_) ? x_full : y;
  for (const TokenChunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Inner inner = take_inner(context, chunk.count);
    const Tensor activated = take_activated(context, inner[0].sizes);
    inner_.products(context, chunk.of(x_full), inner);
    activate(context, inner, activated);
    down_.product(context, activated, chunk.of(partial));
  }
  down_.sum(context, y, partial);
}

template <class Visit>
void Mlp::for_gradients(Context& context, const ChunkedPass& pass, const Visit& visit) const {
  for (const TokenChunk& chunk : chunks()) {
    const Stack::Scope of_chunk(context.workspace);
    const Inner inner = take_inner(context, chunk.count), dinner = with_amaxes(inner, take_amaxes(context));
    const Tensor activated = take_activated(context, inner[0].sizes), dactivated = activated.without_amax();
    const Tensor x = chunk.of(pass.x_full), dy = chunk.of(pass.dy_full);
    inner_.products(context, x, inner);
    LinearOperand of_dy =
        pass.needs_weights ? down_.gradient_operand(context, dy) : down_.operand(context, dy, Float8Order::as_is);
    down_.backward_input(context, of_dy, dactivated);
    activation_gradients(context.ops, inner, {dinner, dactivated, activated, pass.dbias});
    visit(chunk, ChunkGradients{.x = x, .activated = activated, .dy = of_dy, .dinner = dinner});
  }
}

void Mlp::backward_input_of_chunks(Context& context, Tensor dy, Tensor dx, Stash& stash) const {
  const Stack::Scope scope(context.workspace);
  const Tensor dy_full = save_dy(stash);
  gather_tokens_into(context, options_, dy_full, dy);
  const Tensor x_full = enter(context, options_, saved_x(stash)), partial = splits_tokens(options_) ? x_full : dx;
  for_gradients(context, {.x_full = x_full, .dy_full = dy_full, .needs_weights = false},
                [&](const TokenChunk& chunk, const ChunkGradients& of) {
                  inner_.input_gradients(context, of.dinner, chunk.of(partial));
                });
  enter_backward(context, options_, dx, partial);
}

void Mlp::backward_weight_of_chunks(Context& context, const Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor x_full = enter(context, options_, saved_x(stash)), dy_full = stash.saved(this, saved_dy);
  for_gradients(context, {x_full, dy_full, bias_gradient()},
                [&](const TokenChunk& /*chunk*/, const ChunkGradients& of) {
                  down_.weight_gradient(context, of.dy, of.activated);
                  inner_.weight_gradients(context, of.dinner, of.x);
                });
  down_.bias_gradient(context, dy_full);
}

void Mlp::backward_chunks(Context& context, Tensor dy, Tensor dx, const Stash& stash) {
  const Stack::Scope scope(context.workspace);
  const Tensor x_full = enter(context, options_, saved_x(stash)), dy_full = leave_backward(context, options_, dy);
  const Tensor partial = splits_tokens(options_) ? x_full : dx;
  for_gradients(context, {x_full, dy_full, bias_gradient()}, [&](const TokenChunk& chunk, const ChunkGradients& of) {
    down_.weight_gradient(context, of.dy, of.activated);
    inner_.gradients(context, of.dinner, of.x, chunk.of(partial));
  });
  down_.bias_gradient(context, dy_full);
  enter_backward(context, options_, dx, partial);
}

}  // namespace echelon
