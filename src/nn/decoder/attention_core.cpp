#include "nn/decoder/attention_core.h"

#include "base/error.h"
#include "context/documents.h"
#include "nn/decoder/ring_attention.h"

#include <cmath>

namespace echelon {

SavedAttention::SavedAttention(const LayerOptions& options, const HeadSplit& split)
    : group_(options.model.num_attention_heads / options.model.num_key_value_heads),
      first_head_(split.head_in_group),
      scale_(1.0 / std::sqrt(static_cast<double>(options.model.head_dim))),
      is_dropped_(options.recompute.operations.contain(BlockOperation::core_attn)),
      num_windows_(std::ssize(options.windows)),
      window_(options.window_index()) {}

Tensor SavedAttention::begins_of_window(const Microbatch& microbatch) const {
  if (!window_) return {};
  if (!microbatch.key_begin.exists()) throw Failure("a microbatch has no ranges of keys for a window or documents");
  const std::int64_t of_window = microbatch.key_begin.num_elements() / num_windows_;
  return microbatch.key_begin.flat().rows(static_cast<std::int64_t>(*window_) * of_window, of_window);
}

void SavedAttention::compute(const ComputePass& pass, const Qkv& qkv) const {
  const Tensor& q = qkv[0];
  const std::int64_t B = q.size(0), T = q.size(1), H = q.size(2), C = q.size(3);
  const Tensor out = pass.place({this, saved_out, is_dropped_, LastReader::backward_weight}, q.dtype, {B * T, H * C});
  const Tensor lse = pass.place({this, saved_lse, is_dropped_}, accumulate_dtype(q.dtype), {B, H, T});
  if (pass.runs(is_dropped_)) attend_to_all(pass.context, qkv, out.reshaped(q.sizes), lse);
}

AttentionCore::OutGradient SavedAttention::take_out_gradient(Stack& workspace, const Stash& stash) const {
  const Tensor out = stash.saved(this, saved_out), lse = stash.saved(this, saved_lse);
  return {.dout = workspace.take(out.dtype, out.sizes), .delta = workspace.take(lse.dtype, lse.sizes)};
}

AttentionArgs SavedAttention::forward_args(const Qkv& qkv, Tensor out, Tensor lse, const AttentionMask& mask) const {
  return {.q = qkv[0],
          .k = qkv[1],
          .v = qkv[2],
          .out = out,
          .lse = lse,
          .scale = scale_,
          .group = group_,
          .first_head = first_head_,
          .mask = mask};
}

AttentionBackwardArgs SavedAttention::backward_args(const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                                                    const Stash& stash) const {
  const Sizes& sizes = qkv[0].sizes;
  return {.q = qkv[0],
          .k = qkv[1],
          .v = qkv[2],
          .out = stash.saved(this, saved_out).reshaped(sizes),
          .lse = stash.saved(this, saved_lse),
          .dout = of_out.dout.reshaped(sizes),
          .dq = dqkv[0],
          .dk = dqkv[1],
          .dv = dqkv[2],
          .delta = of_out.delta,
          .scale = scale_,
          .group = group_,
          .first_head = first_head_};
}

namespace {

class LocalAttention final : public SavedAttention {
 public:
  LocalAttention(const LayerOptions& options, const HeadSplit& split)
      : SavedAttention(options, split),
        // Kv heads that ranks share are no part of a group, and ranges are not cuDNN's.
        gives_scratch_(options.device.gives_attention_scratch && split.kv_replicas == 1 && !options.window_index()),
        pairs_(options.window_index() ? num_document_pairs(options.seq_len, options.window) : 0) {}

  void backward(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                const Stash& stash) const override {
    const Stack::Scope scope(context.workspace);
    AttentionBackwardArgs args = backward_args(qkv, of_out, dqkv, stash);
    args.mask = mask(context.microbatch, qkv[0]);
    if (gives_scratch_) args.scratch = context.workspace.take(DType::int32, {attention_scratch_size(qkv[0], qkv[1])});
    context.ops.attention_backward(args);
  }

  void decode(Ops& ops, const Qkv& qkv, Tensor begin, const OutAndLse& results) const override {
    ops.attention(forward_args(qkv, results.out, results.lse, {.begin = begin}));
  }

 private:
  void attend_to_all(Context& context, const Qkv& qkv, Tensor out, Tensor lse) const override {
    context.ops.attention(forward_args(qkv, out, lse, mask(context.microbatch, qkv[0])));
  }

  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch, const Tensor& q) const {
    const Tensor begin = begins_of_window(microbatch);
    if (!begin.exists()) return {};
    return {.begin = begin.reshaped({q.size(0), q.size(1)}), .num_pairs = q.size(0) * pairs_};
  }

  bool gives_scratch_;
  std::int64_t pairs_;  // of a sequence, where the block has ranges
};

}  // namespace

std::unique_ptr<AttentionCore> make_attention_core(const LayerOptions& options, const HeadSplit& split) {
  if (options.tokens) return make_ring_attention(options, split);
  return std::make_unique<LocalAttention>(options, split);
}

}  // namespace echelon
