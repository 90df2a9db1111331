#include "nn/context_parallel/ring_attention.h"

#include "nn/context_parallel/block_ring.h"

namespace echelon {
namespace {

/// Of the same sizes, in the workspace.
KeyBlock take_like(Stack& workspace, const KeyBlock& block, DType dtype) {
  return {workspace.take(dtype, block[0].sizes), workspace.take(dtype, block[1].sizes)};
}

class RingAttention final : public KeyAttention {
 public:
  RingAttention(const LayerOptions& options, const HeadSplit& split)
      : heads_(options, split),
        ranges_(options),
        tokens_(options.tokens),
        num_blocks_(tokens_->blocks.num_blocks()),
        gives_scratch_(heads_.give_scratch() && ranges_.may_be_shapes()) {}

  void backward(Context& context, const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv) const override {
    const Stack::Scope scope(context.workspace);
    const DType dtype = qkv[0].dtype, sums = accumulate_dtype(dtype);
    const KeyBlock own = {qkv[1], qkv[2]};
    BlockRing ring(context, tokens_->exchange, ranges_.rows(context.microbatch));
    std::array<KeyBlock, 2> blocks = {ring.take_keys(own), ring.take_keys(own)},
                            gradients = {take_like(context.workspace, own, sums),
                                         take_like(context.workspace, own, sums)};
    const Tensor dq_sum = dtype == sums ? dqkv[0] : context.workspace.take(sums, qkv[0].sizes);
    const Qkv parts = {context.workspace.take(dtype, qkv[0].sizes), context.workspace.take(dtype, own[0].sizes),
                       context.workspace.take(dtype, own[1].sizes)};
    const Tensor dq_sums_of_part = heads_.take_dq_sums(context.workspace, qkv[0], own[0]);
    const Tensor scratch = gives_scratch_ ? take_attention_scratch(context.workspace, qkv[0], own[0]) : Tensor();
    BlockRing::Hop of_gradients;
    for (int distance = 0; distance < num_blocks_; ++distance) {
      context.mesh.enter_part({LayerPart::Kind::ring_hop, distance});
      const KeyBlock& here = distance == 0 ? own : blocks[(distance + 1) % 2];
      BlockRing::Hop hop;
      if (distance + 1 < num_blocks_) hop = ring.pass_keys(here, blocks[distance % 2], distance);
      // The own block's gradients stay at home.
      const Qkv of_block = distance == 0 ? Qkv{dtype == sums ? dq_sum : parts[0], dqkv[1], dqkv[2]} : parts;
      AttentionBackwardArgs args = heads_.backward_args({qkv[0], here[0], here[1]}, gradient, of_block,
                                                        mask(context.microbatch, qkv[0], distance), dq_sums_of_part);
      args.scratch = scratch;
      context.ops.attention_backward(args);
      if (distance == 0 && dtype != sums) context.ops.copy(dq_sum, of_block[0]);
      if (distance > 0) {
        context.ops.add(dq_sum, dq_sum, of_block[0]);
        of_gradients.wait();
        const KeyBlock &sum = gradients[distance % 2], &next = gradients[(distance + 1) % 2];
        for (const std::size_t i : {0, 1})
          distance == 1 ? context.ops.copy(sum[i], of_block[1 + i]) : context.ops.add(sum[i], sum[i], of_block[1 + i]);
        of_gradients = ring.pass_gradients(sum, next, distance);
      }
      hop.wait();
    }
    of_gradients.wait();
    ring.finish();
    if (dtype != sums) context.ops.copy(dqkv[0], dq_sum);
    const KeyBlock& arrived = gradients[num_blocks_ % 2];
    for (const std::size_t i : {0, 1}) add_arrived(context, dqkv[1 + i], arrived[i]);
  }

  void forward(Context& context, const Qkv& qkv, const Attended& result) const override {
    const Stack::Scope scope(context.workspace);
    const auto& [q, k, v] = qkv;
    const auto& [out, lse] = result;
    const DType sums = accumulate_dtype(q.dtype);
    BlockRing ring(context, tokens_->exchange, ranges_.rows(context.microbatch));
    const std::array<KeyBlock, 2> blocks = {ring.take_keys({k, v}), ring.take_keys({k, v})};
    const Tensor sum = q.dtype == sums ? out : context.workspace.take(sums, q.sizes);
    const Tensor part = context.workspace.take(q.dtype, q.sizes), part_lse = context.workspace.take(sums, lse.sizes);
    for (int distance = 0; distance < num_blocks_; ++distance) {
      context.mesh.enter_part({LayerPart::Kind::ring_hop, distance});
      const KeyBlock here = distance == 0 ? KeyBlock{k, v} : blocks[static_cast<std::size_t>(distance + 1) % 2];
      BlockRing::Hop hop;
      if (distance + 1 < num_blocks_)
        hop = ring.pass_keys(here, blocks[static_cast<std::size_t>(distance) % 2], distance);
      const bool is_first = distance == 0;
      const Tensor of_block = is_first && q.dtype == sums ? sum : part;
      context.ops.attention(heads_.forward_args({q, here[0], here[1]}, {of_block, is_first ? lse : part_lse},
                                                mask(context.microbatch, q, distance)));
      if (is_first && q.dtype != sums) context.ops.copy(sum, part);
      if (!is_first) context.ops.merge_attention({.out = sum, .lse = lse, .part = part, .part_lse = part_lse});
      hop.wait();
    }
    ring.finish();
    if (q.dtype != sums) context.ops.copy(out, sum);
  }

 private:
  /// own += arrived, which is rounded once.
  static void add_arrived(Context& context, Tensor own, Tensor arrived) {
    if (own.dtype == arrived.dtype) return context.ops.add(own, own, arrived);
    context.ops.add(arrived, arrived, own);
    context.ops.copy(own, arrived);
  }

  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch, const Tensor& q, int distance) const {
    return ranges_.mask(microbatch, {q.size(0), q.size(1)}, tokens_->source_at(distance));
  }

  HeadGroups heads_;
  WindowRanges ranges_;
  std::shared_ptr<const RankTokens> tokens_;
  int num_blocks_;
  bool gives_scratch_;
};

}  // namespace

std::unique_ptr<KeyAttention> make_ring_attention(const LayerOptions& options, const HeadSplit& split) {
  return std::make_unique<RingAttention>(options, split);
}

}  // namespace echelon
