#include "nn/decoder/attention_core.h"

#include "nn/context_parallel/gathered_attention.h"
#include "nn/context_parallel/head_exchange.h"
#include "nn/context_parallel/ring_attention.h"
#include "nn/context_parallel/ulysses_attention.h"

namespace echelon {
namespace {

/// Saves out and lse, the log-sum-exps, of attention to all keys.
class SavedAttention final : public AttentionCore {
 public:
  SavedAttention(const LayerOptions& options, std::unique_ptr<KeyAttention> keys)
      : keys_(std::move(keys)),
        is_dropped_(options.recompute.operations.contain(BlockOperation::core_attn)),
        saves_amax_(options.is_float8 && !is_dropped_),
        window_(options.window),
        exchanges_(options.tokens != nullptr) {}

  void compute(const ComputePass& pass, const Qkv& qkv) const override {
    const Tensor& q = qkv[0];
    const std::int64_t B = q.size(0), T = q.size(1), H = q.size(2), C = q.size(3);
    const Tensor out = pass.place({this, saved_out, RowKind::sequence}, is_dropped_, q.dtype, {B * T, H * C});
    const Tensor lse = pass.place({this, saved_lse, RowKind::queries, LastReader::backward_input}, is_dropped_,
                                  accumulate_dtype(q.dtype), keys_->lse_sizes(q));
    if (saves_amax_) (void)pass.place({this, saved_amax}, false, DType::float32, {1});
    if (!pass.runs(is_dropped_)) return;
    attend(pass.context, Call::forward, qkv, [&] { keys_->forward(pass.context, qkv, {out.reshaped(q.sizes), lse}); });
  }

  [[nodiscard]] Tensor out(const Stash& stash) const override {
    const Tensor out = stash.saved(this, saved_out);
    return saves_amax_ ? out.with_amax(stash.saved(this, saved_amax)) : out;
  }

  [[nodiscard]] OutGradient take_out_gradient(Stack& workspace, const Stash& stash) const override {
    const Tensor out = stash.saved(this, saved_out), lse = stash.saved(this, saved_lse);
    return {.dout = workspace.take(out.dtype, out.sizes), .delta = workspace.take(lse.dtype, lse.sizes)};
  }

  void backward(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                const Stash& stash) const override {
    const Sizes& sizes = qkv[0].sizes;
    const AttendedGradient gradient = {
        .of = {stash.saved(this, saved_out).reshaped(sizes), stash.saved(this, saved_lse)},
        .dout = of_out.dout.reshaped(sizes),
        .delta = of_out.delta};
    attend(context, Call::backward, qkv, [&] { keys_->backward(context, qkv, gradient, dqkv); });
  }

  void decode(Ops& ops, const Qkv& qkv, Tensor begin, const Attended& results) const override {
    keys_->decode(ops, qkv, begin, results);
  }

 private:
  enum Saved : int { saved_out, saved_lse, saved_amax };  // in the stash
  enum class Call : std::int64_t { forward, backward };

  template <class F>
  void attend(Context& context, Call kind, const Qkv& qkv, F&& call) const {
    if (context.repeated == nullptr || !exchanges_) return call();
    RepeatedCalls::Key key = {static_cast<std::int64_t>(kind), window_, static_cast<std::int64_t>(qkv[0].dtype)};
    for (const Tensor& x : qkv)
      for (int dim = 0; dim < x.sizes.num_dims(); ++dim) key.push_back(x.sizes[dim]);
    context.repeated->make(key, context.workspace, call);
  }

  std::unique_ptr<KeyAttention> keys_;
  bool is_dropped_, saves_amax_;
  std::int64_t window_;
  bool exchanges_;
};

std::unique_ptr<KeyAttention> make_exchanging_attention(const LayerOptions& options, const HeadSplit& split) {
  const RankTokens& tokens = *options.tokens;
  const int u = tokens.exchange.head_ranks;
  if (u == 1) return make_ring_attention(options, split);
  const HeadSplit of_heads = exchanged_heads(split, u, tokens.rank % u);
  return make_ulysses_attention(options, tokens.blocks.num_blocks() > 1 ? make_ring_attention(options, of_heads)
                                                                        : make_local_attention(options, of_heads));
}

std::unique_ptr<KeyAttention> make_key_attention(const LayerOptions& options, const HeadSplit& split) {
  if (!options.tokens) return make_local_attention(options, split);
  switch (options.tokens->exchange.method) {
    case ContextMethod::ring: return make_ring_attention(options, split);
    case ContextMethod::all_gather: return make_gathered_attention(options, split);
    case ContextMethod::ulysses:
    case ContextMethod::ulysses_ring: return make_exchanging_attention(options, split);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<AttentionCore> make_attention_core(const LayerOptions& options, const HeadSplit& split) {
  return std::make_unique<SavedAttention>(options, make_key_attention(options, split));
}

}  // namespace echelon
