#include "nn/context_parallel/gathered_attention.h"

#include "nn/context_parallel/key_gather.h"

namespace echelon {
namespace {

Tensor as_rows(const Tensor& x) { return x.reshaped({x.num_elements() / x.size(-1), x.size(-1)}); }

class GatheredAttention final : public KeyAttention {
 public:
  GatheredAttention(const LayerOptions& options, const HeadSplit& split)
      : heads_(options, split),
        ranges_(options),
        tokens_(options.tokens),
        num_kv_heads_(split.num_kv_heads),
        num_sequences_(options.num_sequences) {}

  // By kv heads, so that those of one are contiguous.
  [[nodiscard]] Sizes lse_sizes(const Tensor& q) const override {
    return {num_kv_heads_, q.size(0), q.size(2) / num_kv_heads_, q.size(1)};
  }

  void forward(Context& context, const Qkv& qkv, const Attended& result) const override {
    const Stack::Scope scope(context.workspace);
    const Qkv split = split_all(context, qkv);
    const Tensor out = take_split(context.workspace, result.out);
    for_each_head(context, split, [&](std::int64_t head, const KeyBlock& all) {
      context.ops.attention(heads_.forward_args({of_head(split[0], qkv[0], head), all[0], all[1]},
                                                {of_head(out, qkv[0], head), statistics(result.lse, head)},
                                                mask(context.microbatch, qkv[0])));
    });
    join(context, result.out, out);
  }

  void backward(Context& context, const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv) const override {
    const Stack::Scope scope(context.workspace);
    const Tensor& q = qkv[0];
    const Qkv split = split_all(context, qkv), dsplit = take_all_split(context.workspace, dqkv);
    const Tensor out = split_of(context, gradient.of.out), dout = split_of(context, gradient.dout);
    const KeyBlock dall = take_whole(context.workspace, split[1]), dfull = take_full(context.workspace, split[1]);
    const Tensor dq_sums = heads_.take_dq_sums(context.workspace, of_head(split[0], q, 0), dall[0]);
    GradientScatter scatter(context, dfull, ranges_.rows(context.microbatch));
    for_each_head(context, split, [&](std::int64_t head, const KeyBlock& all) {
      const AttendedGradient of_head_gradient = {.of = {of_head(out, q, head), statistics(gradient.of.lse, head)},
                                                 .dout = of_head(dout, q, head),
                                                 .delta = statistics(gradient.delta, head)};
      context.ops.attention_backward(
          heads_.backward_args({of_head(split[0], q, head), all[0], all[1]}, of_head_gradient,
                               {of_head(dsplit[0], q, head), dall[0], dall[1]}, mask(context.microbatch, q), dq_sums));
      scatter.wait();
      scatter.finish();
      for (const std::size_t i : {0, 1})
        context.ops.gather_rows(
            {.x = as_rows(dall[i]), .index = context.microbatch.rows_by_rank, .y = as_rows(dfull[i])});
      scatter.start(own_of(dsplit, head), dfull);
    });
    scatter.wait();
    scatter.finish();
    for (std::size_t i = 0; i < dqkv.size(); ++i) join(context, dqkv[i], dsplit[i]);
  }

 private:
  /// f(head, keys and values of all positions), while those of the next head are gathered. `split`: by kv heads.
  template <class F>
  void for_each_head(Context& context, const Qkv& split, F f) const {
    KeyGather gather(context, ranges_.rows(context.microbatch));
    const KeyBlock full = gather.take_full(own_of(split, 0)), all = take_whole(context.workspace, split[1]);
    gather.start(full, own_of(split, 0));
    for (std::int64_t head = 0; head < num_kv_heads_; ++head) {
      context.mesh.enter_part({LayerPart::Kind::kv_head, head});
      for (const std::size_t i : {0, 1}) {
        gather.wait(i);
        context.ops.gather_rows(
            {.x = as_rows(full[i]), .index = context.microbatch.rows_by_position, .y = as_rows(all[i])});
      }
      if (head + 1 < num_kv_heads_) gather.start(full, own_of(split, head + 1));
      f(head, all);
    }
    gather.finish();
  }

  /// Of one kv head: this rank's, [1, B, T, C]; those of all as ranks send them, [cp, B, T, C]; and in ascending order,
  /// [B, all positions, 1, C].
  [[nodiscard]] Tensor own_of(const Tensor& split, std::int64_t head) const {
    return split.rows(head, 1).reshaped({1, num_sequences_, split.size(1) / num_sequences_, split.size(2)});
  }
  [[nodiscard]] KeyBlock own_of(const Qkv& split, std::int64_t head) const {
    return {own_of(split[1], head), own_of(split[2], head)};
  }
  [[nodiscard]] KeyBlock take_full(Stack& workspace, const Tensor& split) const {
    const Sizes sizes = {tokens_->cp, num_sequences_, split.size(1) / num_sequences_, split.size(2)};
    return {workspace.take(split.dtype, sizes), workspace.take(split.dtype, sizes)};
  }
  [[nodiscard]] KeyBlock take_whole(Stack& workspace, const Tensor& split) const {
    const Sizes sizes = {num_sequences_, tokens_->blocks.num_gathered_rows(), 1, split.size(2)};
    return {workspace.take(split.dtype, sizes), workspace.take(split.dtype, sizes)};
  }

  // x [B, T, heads, C] as [kv heads, B T, columns].
  [[nodiscard]] Tensor take_split(Stack& workspace, const Tensor& x) const {
    const std::int64_t N = x.size(0) * x.size(1);
    return workspace.take(x.dtype, {num_kv_heads_, N, x.num_elements() / (num_kv_heads_ * N)});
  }
  [[nodiscard]] Qkv take_all_split(Stack& workspace, const Qkv& x) const {
    return {take_split(workspace, x[0]), take_split(workspace, x[1]), take_split(workspace, x[2])};
  }
  [[nodiscard]] Tensor by_token(const Tensor& x, const Tensor& split) const {
    return x.reshaped({split.size(1), num_kv_heads_, split.size(2)});
  }
  [[nodiscard]] Tensor split_of(Context& context, const Tensor& x) const {
    const Tensor split = take_split(context.workspace, x);
    context.ops.split_heads({.x = by_token(x, split), .y = split});
    return split;
  }
  [[nodiscard]] Qkv split_all(Context& context, const Qkv& x) const {
    return {split_of(context, x[0]), split_of(context, x[1]), split_of(context, x[2])};
  }
  void join(Context& context, const Tensor& x, const Tensor& split) const {
    context.ops.join_heads({.x = split, .y = by_token(x, split)});
  }

  /// The queries of a kv head, or their gradients; q gives B and T.
  [[nodiscard]] Tensor of_head(const Tensor& split, const Tensor& q, std::int64_t head) const {
    return split.rows(head, 1).reshaped({q.size(0), q.size(1), q.size(2) / num_kv_heads_, q.size(3)});
  }
  [[nodiscard]] static Tensor statistics(const Tensor& of_all, std::int64_t head) {
    return of_all.rows(head, 1).reshaped({of_all.size(1), of_all.size(2), of_all.size(3)});
  }

  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch, const Tensor& q) const {
    return ranges_.mask(microbatch, {q.size(0), q.size(1)}, 0);
  }

  HeadGroups heads_;
  WindowRanges ranges_;
  std::shared_ptr<const RankTokens> tokens_;
  std::int64_t num_kv_heads_, num_sequences_;
};

}  // namespace

std::unique_ptr<KeyAttention> make_gathered_attention(const LayerOptions& options, const HeadSplit& split) {
  return std::make_unique<GatheredAttention>(options, split);
}

}  // namespace echelon
