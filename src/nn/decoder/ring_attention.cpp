#include "nn/decoder/ring_attention.h"

#include "spec/groups.h"

namespace echelon {
namespace {

/// Keys and values of a block, or their gradients.
using Block = std::array<Tensor, 2>;

/// The neighbours in the ring. One of them may be both.
class Ring {
 public:
  Ring(Context& context, const Group& group) : context_(context), comm_(context.mesh.comm(group)) {}

  /// A block on its way to the next rank while that of the rank before arrives.
  class Hop {
   public:
    void wait() {
      for (Pending& each : pending_) each.wait();
    }

   private:
    friend class Ring;
    std::array<Pending, 4> pending_;
  };
  /// Both blocks belong to the hop until it was waited for.
  [[nodiscard]] Hop pass(const Block& sent, const Block& received) {
    const int next = (comm_.rank() + 1) % comm_.size(), before = (comm_.rank() + comm_.size() - 1) % comm_.size();
    Hop hop;
    context_.ops.publish();
    context_.mesh.together([&] {
      for (const std::size_t i : {0, 1}) {
        hop.pending_[2 * i] = comm_.send(sent[i], next);
        hop.pending_[2 * i + 1] = comm_.receive(received[i], before);
      }
    });
    return hop;
  }

 private:
  Context& context_;
  Comm& comm_;
};

/// Of the same sizes, in the workspace.
Block take_like(Stack& workspace, const Block& block, DType dtype) {
  return {workspace.take(dtype, block[0].sizes), workspace.take(dtype, block[1].sizes)};
}

class RingAttention final : public KeyAttention {
 public:
  RingAttention(const LayerOptions& options, const HeadSplit& split)
      : heads_(options, split),
        ranges_(options),
        tokens_(options.tokens),
        group_(tokens_->exchange.head_ranks > 1 ? cp_ring_group(tokens_->exchange.head_ranks) : cp_group),
        num_blocks_(tokens_->blocks.num_blocks()) {}

  void backward(Context& context, const Qkv& qkv, const AttendedGradient& gradient, const Qkv& dqkv) const override {
    const Stack::Scope scope(context.workspace);
    const DType dtype = qkv[0].dtype, sums = accumulate_dtype(dtype);
    const Block own = {qkv[1], qkv[2]};
    std::array<Block, 2> blocks = {take_like(context.workspace, own, dtype), take_like(context.workspace, own, dtype)},
                         gradients = {take_like(context.workspace, own, sums), take_like(context.workspace, own, sums)};
    const Tensor dq_sum = dtype == sums ? dqkv[0] : context.workspace.take(sums, qkv[0].sizes);
    const Qkv parts = {context.workspace.take(dtype, qkv[0].sizes), context.workspace.take(dtype, own[0].sizes),
                       context.workspace.take(dtype, own[1].sizes)};
    Ring ring(context, group_);
    Ring::Hop of_gradients;
    for (int distance = 0; distance < num_blocks_; ++distance) {
      context.mesh.enter_hop(distance);
      const Block& here = distance == 0 ? own : blocks[(distance + 1) % 2];
      Ring::Hop hop;
      if (distance + 1 < num_blocks_) hop = ring.pass(here, blocks[distance % 2]);
      // The own block's gradients stay at home.
      const Qkv of_block = distance == 0 ? Qkv{dtype == sums ? dq_sum : parts[0], dqkv[1], dqkv[2]} : parts;
      context.ops.attention_backward(heads_.backward_args({qkv[0], here[0], here[1]}, gradient, of_block,
                                                          mask(context.microbatch, qkv[0], distance)));
      if (distance == 0 && dtype != sums) context.ops.copy(dq_sum, of_block[0]);
      if (distance > 0) {
        context.ops.add(dq_sum, dq_sum, of_block[0]);
        of_gradients.wait();
        const Block &sum = gradients[distance % 2], &next = gradients[(distance + 1) % 2];
        for (const std::size_t i : {0, 1})
          distance == 1 ? context.ops.copy(sum[i], of_block[1 + i]) : context.ops.add(sum[i], sum[i], of_block[1 + i]);
        of_gradients = ring.pass(sum, next);
      }
      hop.wait();
    }
    of_gradients.wait();
    if (dtype != sums) context.ops.copy(dqkv[0], dq_sum);
    const Block& arrived = gradients[num_blocks_ % 2];
    for (const std::size_t i : {0, 1}) add_arrived(context, dqkv[1 + i], arrived[i]);
  }

  void forward(Context& context, const Qkv& qkv, const Attended& result) const override {
    const Stack::Scope scope(context.workspace);
    const auto& [q, k, v] = qkv;
    const auto& [out, lse] = result;
    const DType sums = accumulate_dtype(q.dtype);
    const std::array<Block, 2> blocks = {take_like(context.workspace, {k, v}, k.dtype),
                                         take_like(context.workspace, {k, v}, k.dtype)};
    const Tensor sum = q.dtype == sums ? out : context.workspace.take(sums, q.sizes);
    const Tensor part = context.workspace.take(q.dtype, q.sizes), part_lse = context.workspace.take(sums, lse.sizes);
    Ring ring(context, group_);
    for (int distance = 0; distance < num_blocks_; ++distance) {
      context.mesh.enter_hop(distance);
      const Block here = distance == 0 ? Block{k, v} : blocks[static_cast<std::size_t>(distance + 1) % 2];
      Ring::Hop hop;
      if (distance + 1 < num_blocks_) hop = ring.pass(here, blocks[static_cast<std::size_t>(distance) % 2]);
      const bool is_first = distance == 0;
      const Tensor of_block = is_first && q.dtype == sums ? sum : part;
      context.ops.attention(heads_.forward_args({q, here[0], here[1]}, {of_block, is_first ? lse : part_lse},
                                                mask(context.microbatch, q, distance)));
      if (is_first && q.dtype != sums) context.ops.copy(sum, part);
      if (!is_first) context.ops.merge_attention({.out = sum, .lse = lse, .part = part, .part_lse = part_lse});
      hop.wait();
    }
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
  Group group_;
  int num_blocks_;
};

}  // namespace

std::unique_ptr<KeyAttention> make_ring_attention(const LayerOptions& options, const HeadSplit& split) {
  return std::make_unique<RingAttention>(options, split);
}

}  // namespace echelon
