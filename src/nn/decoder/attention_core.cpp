#include "nn/decoder/attention_core.h"

#include "nn/decoder/ring_attention.h"

#include <cmath>

namespace echelon {
namespace {

class LocalAttention final : public AttentionCore {
 public:
  LocalAttention(const LayerOptions& options, const HeadSplit& split)
      : group_(options.model.num_attention_heads / options.model.num_key_value_heads),
        first_head_(split.head_in_group),
        scale_(1.0 / std::sqrt(static_cast<double>(options.model.head_dim))),
        // Kv heads that ranks share are no part of a group.
        gives_scratch_(options.device.gives_attention_scratch && split.kv_replicas == 1),
        is_dropped_(options.recompute.operations.contain(BlockOperation::core_attn)) {}

  void compute(const ComputePass& pass, const Qkv& qkv) const override {
    const Tensor& q = qkv[0];
    const std::int64_t B = q.size(0), T = q.size(1), H = q.size(2), C = q.size(3);
    const Tensor out = pass.place({this, saved_out, is_dropped_, LastReader::backward_weight}, q.dtype, {B * T, H * C});
    const Tensor lse = pass.place({this, saved_lse, is_dropped_}, accumulate_dtype(q.dtype), {B, H, T});
    if (pass.runs(is_dropped_))
      attend(pass.context.ops, qkv, out.reshaped(q.sizes), lse, mask(pass.context.microbatch, B, T));
  }

  [[nodiscard]] Tensor out(const Stash& stash) const override { return stash.saved(this, saved_out); }

  [[nodiscard]] OutGradient take_out_gradient(Stack& workspace, const Stash& stash) const override {
    const Tensor out = stash.saved(this, saved_out), lse = stash.saved(this, saved_lse);
    return {.dout = workspace.take(out.dtype, out.sizes), .delta = workspace.take(lse.dtype, lse.sizes)};
  }

  void backward(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                const Stash& stash) const override {
    const Stack::Scope scope(context.workspace);
    const auto& [q, k, v] = qkv;
    const auto& [dq, dk, dv] = dqkv;
    context.ops.attention_backward(
        {.q = q,
         .k = k,
         .v = v,
         .out = stash.saved(this, saved_out).reshaped(q.sizes),
         .lse = stash.saved(this, saved_lse),
         .dout = of_out.dout.reshaped(q.sizes),
         .dq = dq,
         .dk = dk,
         .dv = dv,
         .delta = of_out.delta,
         .scale = scale_,
         .group = group_,
         .first_head = first_head_,
         .mask = mask(context.microbatch, q.size(0), q.size(1)),
         .scratch = gives_scratch_ ? context.workspace.take(DType::int32, {attention_scratch_size(q, k)}) : Tensor()});
  }

  void decode(Ops& ops, const Qkv& qkv, Tensor out, Tensor lse) const override { attend(ops, qkv, out, lse, {}); }

 private:
  enum Saved : int { saved_out, saved_lse };  // in the stash

  void attend(Ops& ops, const Qkv& qkv, Tensor out, Tensor lse, const AttentionMask& mask) const {
    ops.attention({.q = qkv[0],
                   .k = qkv[1],
                   .v = qkv[2],
                   .out = out,
                   .lse = lse,
                   .scale = scale_,
                   .group = group_,
                   .first_head = first_head_,
                   .mask = mask});
  }

  [[nodiscard]] static AttentionMask mask(const Microbatch& microbatch, std::int64_t B, std::int64_t T) {
    const Tensor& begin = microbatch.key_begin;
    return {.begin = begin.exists() ? begin.reshaped({B, T}) : Tensor()};
  }

  std::int64_t group_;  // query heads per kv head
  std::int64_t first_head_;
  double scale_;
  bool gives_scratch_;
  bool is_dropped_;
};

}  // namespace

std::unique_ptr<AttentionCore> make_attention_core(const LayerOptions& options, const HeadSplit& split) {
  if (options.tokens) return make_ring_attention(options, split);
  return std::make_unique<LocalAttention>(options, split);
}

}  // namespace echelon
