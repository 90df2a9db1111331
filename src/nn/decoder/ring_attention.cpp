#include "nn/decoder/ring_attention.h"

#include "spec/groups.h"

#include <cmath>

namespace echelon {
namespace {

/// Keys and values of a block, or their gradients.
using Block = std::array<Tensor, 2>;

/// The neighbours in the ring. One of them may be both.
class Ring {
 public:
  explicit Ring(Context& context) : context_(context), comm_(context.mesh.comm(cp_group)) {}

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

class RingAttention final : public AttentionCore {
 public:
  RingAttention(const LayerOptions& options, const HeadSplit& split)
      : tokens_(options.tokens),
        group_(options.model.num_attention_heads / options.model.num_key_value_heads),
        first_head_(split.head_in_group),
        scale_(1.0 / std::sqrt(static_cast<double>(options.model.head_dim))),
        is_dropped_(options.recompute.operations.contain(BlockOperation::core_attn)) {}

  void compute(const ComputePass& pass, const Qkv& qkv) const override {
    const Tensor& q = qkv[0];
    const std::int64_t B = q.size(0), T = q.size(1), H = q.size(2), C = q.size(3);
    const Tensor out = pass.place({this, saved_out, is_dropped_, LastReader::backward_weight}, q.dtype, {B * T, H * C});
    const Tensor lse = pass.place({this, saved_lse, is_dropped_}, accumulate_dtype(q.dtype), {B, H, T});
    if (pass.runs(is_dropped_)) attend_to_all(pass.context, qkv, out.reshaped(q.sizes), lse);
  }

  [[nodiscard]] Tensor out(const Stash& stash) const override { return stash.saved(this, saved_out); }

  [[nodiscard]] OutGradient take_out_gradient(Stack& workspace, const Stash& stash) const override {
    const Tensor out = stash.saved(this, saved_out), lse = stash.saved(this, saved_lse);
    return {.dout = workspace.take(out.dtype, out.sizes), .delta = workspace.take(lse.dtype, lse.sizes)};
  }

  void backward(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                const Stash& stash) const override {
    const Stack::Scope scope(context.workspace);
    const DType dtype = qkv[0].dtype, sums = accumulate_dtype(dtype);
    const Block own = {qkv[1], qkv[2]};
    std::array<Block, 2> blocks = {take_like(context.workspace, own, dtype), take_like(context.workspace, own, dtype)},
                         gradients = {take_like(context.workspace, own, sums), take_like(context.workspace, own, sums)};
    const Tensor dq_sum = dtype == sums ? dqkv[0] : context.workspace.take(sums, qkv[0].sizes);
    const Qkv parts = {context.workspace.take(dtype, qkv[0].sizes), context.workspace.take(dtype, own[0].sizes),
                       context.workspace.take(dtype, own[1].sizes)};
    Ring ring(context);
    Ring::Hop of_gradients;
    for (int distance = 0; distance < tokens_->cp; ++distance) {
      const Block& here = distance == 0 ? own : blocks[(distance + 1) % 2];
      Ring::Hop hop;
      if (distance + 1 < tokens_->cp) hop = ring.pass(here, blocks[distance % 2]);
      // The own block's gradients stay at home.
      const Qkv of_block = distance == 0 ? Qkv{dtype == sums ? dq_sum : parts[0], dqkv[1], dqkv[2]} : parts;
      differentiate(context, {qkv[0], here[0], here[1]}, of_out, of_block, {stash, distance});
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
    const Block& arrived = gradients[tokens_->cp % 2];
    for (const std::size_t i : {0, 1}) add_arrived(context, dqkv[1 + i], arrived[i]);
  }

  void decode(Ops& /*ops*/, const Qkv& /*qkv*/, Tensor /*out*/, Tensor /*lse*/) const override {
    throw Failure("text is generated by ranks that hold all tokens of a sequence");
  }

 private:
  enum Saved : int { saved_out, saved_lse };  // in the stash

  struct AtHop {
    const Stash& stash;
    int distance;
  };

  void attend_to_all(Context& context, const Qkv& qkv, Tensor out, Tensor lse) const {
    const Stack::Scope scope(context.workspace);
    const auto& [q, k, v] = qkv;
    const DType sums = accumulate_dtype(q.dtype);
    const std::array<Block, 2> blocks = {take_like(context.workspace, {k, v}, k.dtype),
                                         take_like(context.workspace, {k, v}, k.dtype)};
    const Tensor sum = q.dtype == sums ? out : context.workspace.take(sums, q.sizes);
    const Tensor part = context.workspace.take(q.dtype, q.sizes), part_lse = context.workspace.take(sums, lse.sizes);
    Ring ring(context);
    for (int distance = 0; distance < tokens_->cp; ++distance) {
      const Block here = distance == 0 ? Block{k, v} : blocks[static_cast<std::size_t>(distance + 1) % 2];
      Ring::Hop hop;
      if (distance + 1 < tokens_->cp) hop = ring.pass(here, blocks[static_cast<std::size_t>(distance) % 2]);
      const bool is_first = distance == 0;
      const Tensor of_block = is_first && q.dtype == sums ? sum : part;
      context.ops.attention({.q = q,
                             .k = here[0],
                             .v = here[1],
                             .out = of_block,
                             .lse = is_first ? lse : part_lse,
                             .scale = scale_,
                             .group = group_,
                             .first_head = first_head_,
                             .mask = mask(context.microbatch, q, distance)});
      if (is_first && q.dtype != sums) context.ops.copy(sum, part);
      if (!is_first) context.ops.merge_attention({.out = sum, .lse = lse, .part = part, .part_lse = part_lse});
      hop.wait();
    }
    if (q.dtype != sums) context.ops.copy(out, sum);
  }

  void differentiate(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                     const AtHop& at) const {
    const Tensor& q = qkv[0];
    context.ops.attention_backward({.q = q,
                                    .k = qkv[1],
                                    .v = qkv[2],
                                    .out = at.stash.saved(this, saved_out).reshaped(q.sizes),
                                    .lse = at.stash.saved(this, saved_lse),
                                    .dout = of_out.dout.reshaped(q.sizes),
                                    .dq = dqkv[0],
                                    .dk = dqkv[1],
                                    .dv = dqkv[2],
                                    .delta = of_out.delta,
                                    .scale = scale_,
                                    .group = group_,
                                    .first_head = first_head_,
                                    .mask = mask(context.microbatch, q, at.distance)});
  }

  /// own += arrived, which is rounded once.
  static void add_arrived(Context& context, Tensor own, Tensor arrived) {
    if (own.dtype == arrived.dtype) return context.ops.add(own, own, arrived);
    context.ops.add(arrived, arrived, own);
    context.ops.copy(own, arrived);
  }

  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch, const Tensor& q, int distance) const {
    const std::int64_t B = q.size(0), T = q.size(1), source = tokens_->source_at(distance);
    const auto of_block = [&](const Tensor& bounds) {
      return bounds.flat().rows(source * B * T, B * T).reshaped({B, T});
    };
    return {.begin = of_block(microbatch.key_begin),
            .end = of_block(microbatch.key_end),
            .num_pairs = B * tokens_->pairs[static_cast<std::size_t>(source)]};
  }

  std::shared_ptr<const RankTokens> tokens_;
  std::int64_t group_;  // query heads per kv head
  std::int64_t first_head_;
  double scale_;
  bool is_dropped_;
};

}  // namespace

std::unique_ptr<AttentionCore> make_ring_attention(const LayerOptions& options, const HeadSplit& split) {
  return std::make_unique<RingAttention>(options, split);
}

}  // namespace echelon
