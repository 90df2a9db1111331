// The bytes of a decoder block's activations in the terms of docs/internals/memory.md, where they are derived. Nothing
// here looks into a layer.
#pragma once

#include "spec/recompute.h"
#include "tensor/stack.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace echelon::formulas {

using enum BlockOperation;
using Bytes = std::int64_t;

/// A block as one tensor-parallel rank has it.
struct Block {
  std::int64_t N = 0;        // tokens of a microbatch: B T
  std::int64_t n = 0;        // tokens between the branches: N, or N / tp under sequence parallelism
  std::int64_t D = 0;        // hidden_size
  std::int64_t H = 0;        // query heads of this rank
  std::int64_t K = 0;        // key/value heads of this rank
  std::int64_t C = 0;        // head_dim
  std::int64_t F = 0;        // features of the feed-forward branch on this rank
  Bytes e = 0;               // of an activation
  Bytes a = 0;               // of a sum: 8 in float64, else 4
  int S = 0;                 // sums that a norm keeps: 2 of LayerNorm, 1 of RMSNorm
  int G = 0;                 // products before the activation: 2 of SwiGLU, 1 of GELU
  bool has_qk_norm = false;  // norms of q and k
  bool splits_tokens = false;
  bool has_ring = false;  // context parallelism: N are the tokens of one rank
  std::int64_t M = 0;     // most tokens of the feed-forward branch at a time, where it is recomputed; 0: N

  // One tensor each; it begins at a multiple of 64 bytes.
  [[nodiscard]] Bytes x() const { return aligned(e * n * D); }
  [[nodiscard]] Bytes x_full() const { return aligned(e * N * D); }
  [[nodiscard]] Bytes q() const { return aligned(e * N * H * C); }
  [[nodiscard]] Bytes k() const { return aligned(e * N * K * C); }
  [[nodiscard]] Bytes f() const { return aligned(e * N * F); }
  [[nodiscard]] Bytes sums_of(std::int64_t heads) const { return aligned(a * N * heads * C); }
  /// Scratch of a ring, whatever its length: two blocks of keys and values, and what one block gives. In 16 bits the
  /// sum over blocks is wider.
  [[nodiscard]] Bytes ring_forward() const { return has_ring ? 4 * k() + q() + lse() + (e < a ? sums_of(H) : 0) : 0; }
  /// Two blocks, two gradients of blocks, and the gradients of one block.
  [[nodiscard]] Bytes ring_backward() const {
    return has_ring ? 4 * k() + 4 * sums_of(K) + q() + 2 * k() + (e < a ? sums_of(H) : 0) : 0;
  }
  /// The largest of as few chunks as there can be, which differ by a token at most.
  [[nodiscard]] Bytes f_of_chunk() const {
    const std::int64_t chunks = (N + M - 1) / M;
    return aligned(e * ((N + chunks - 1) / chunks) * F);
  }
  [[nodiscard]] Bytes statistics() const { return S * aligned(a * n); }
  [[nodiscard]] Bytes lse() const { return aligned(a * N * H); }
  [[nodiscard]] Bytes gathered() const { return splits_tokens ? x_full() : 0; }
};

enum class Part { attention, h, mlp };

/// What backward reads of a block besides its input. It is kept unless one of `dropped_with` is formed again.
struct Outcome {
  Part part{};
  Bytes bytes = 0;
  std::vector<BlockOperation> dropped_with;
  bool weight_reads = false;  // backward_weight does, not only backward_input
};

inline std::vector<Outcome> outcomes(const Block& b) {
  const BlockOperation of_q = b.has_qk_norm ? qk_norm : qkv_proj;
  const Bytes products = b.has_qk_norm ? b.q() + b.k() : 0;
  const Bytes of_heads = b.has_qk_norm ? aligned(b.a * b.N * b.H) + aligned(b.a * b.N * b.K) : 0;
  return {
      {Part::attention, b.statistics(), {qkv_proj}, true},  // of the norm before
      {Part::attention, products, {qkv_proj}, true},        // q and k before their norms
      {Part::attention, of_heads, {of_q}, true},            // 1/rms of every head
      {Part::attention, b.q() + b.k(), {of_q}},             // q, k
      {Part::attention, b.k(), {qkv_proj}},                 // v
      {Part::attention, b.q(), {core_attn}, true},          // what attention gives
      {Part::attention, b.lse(), {core_attn}},
      {Part::h, b.x(), {o_proj}, true},
      {Part::h, b.statistics(), {o_proj, mlp}, true},  // of the norm behind h
      {Part::mlp, b.G * b.f(), {mlp}, true},
  };
}

/// The feed-forward branch is formed chunk by chunk, and nothing of it outlives a chunk.
inline bool is_chunked(const Block& b, const BlockOperations& recompute) { return b.M > 0 && recompute.contain(mlp); }

inline bool is_dropped(const Outcome& outcome, const BlockOperations& recompute) {
  return std::any_of(outcome.dropped_with.begin(), outcome.dropped_with.end(),
                     [&](BlockOperation each) { return recompute.contain(each); });
}

template <class Which>
Bytes sum_of(const Block& block, Which which) {
  Bytes sum = 0;
  for (const Outcome& outcome : outcomes(block))
    if (which(outcome)) sum += outcome.bytes;
  return sum;
}

/// From forward to the end of backward, for each microbatch in flight; the block's input comes on top.
inline Bytes kept(const Block& b, const BlockOperations& recompute) {
  return sum_of(b, [&](const Outcome& o) { return !is_dropped(o, recompute); });
}

/// That part of it which backward_input reads alone, so that it is free after it.
inline Bytes kept_for_input(const Block& b, const BlockOperations& recompute) {
  return sum_of(b, [&](const Outcome& o) { return !is_dropped(o, recompute) && !o.weight_reads; });
}

/// From backward_input to backward_weight: gradients of the two branches' outputs and of the norms' outcomes, of q, k,
/// v (twice where they are normalised), the activation once more; and what was formed again and weights read.
inline Bytes kept_for_weights(const Block& b, const BlockOperations& recompute) {
  const bool in_chunks = is_chunked(b, recompute);
  const Bytes gradients =
      2 * b.x_full() + 2 * b.x() + b.q() + 2 * b.k() + (b.has_qk_norm ? b.q() + b.k() : 0) + (in_chunks ? 0 : b.f());
  return gradients + sum_of(b, [&](const Outcome& o) {
           return is_dropped(o, recompute) && o.weight_reads && !(in_chunks && o.part == Part::mlp);
         });
}

/// What a pass forms in its scratch: all that is dropped, but what backward_input keeps for backward_weight.
inline Bytes in_scratch(const Block& b, const BlockOperations& recompute, Part part, bool is_split = false) {
  if (part == Part::mlp && is_chunked(b, recompute)) return b.G * b.f_of_chunk();
  return sum_of(
      b, [&](const Outcome& o) { return o.part == part && is_dropped(o, recompute) && !(is_split && o.weight_reads); });
}

/// The activation, or its gradient.
inline Bytes activation(const Block& b, const BlockOperations& recompute) {
  return is_chunked(b, recompute) ? b.f_of_chunk() : b.f();
}

/// Scratch of forward: a norm's outcome, h if it is dropped, and what the branch takes that needs more.
inline Bytes forward_workspace(const Block& b, const BlockOperations& recompute) {
  const Bytes in_attention = in_scratch(b, recompute, Part::attention),
              in_mlp = in_scratch(b, recompute, Part::mlp) + activation(b, recompute);
  return b.x() + in_scratch(b, recompute, Part::h) +
         std::max(in_attention + std::max(b.gathered(), b.ring_forward()), in_mlp + b.gathered());
}

/// Scratch of the fused backward. Where h is dropped all of attention is formed before the feed-forward branch goes
/// back, and stays.
inline Bytes backward_workspace(const Block& b, const BlockOperations& recompute) {
  const auto gathered_for = [&](BlockOperation operation) { return recompute.contain(operation) ? b.gathered() : 0; };
  const Bytes behind_norms = b.has_qk_norm ? b.q() + b.k() : 0;
  const Bytes attention = in_scratch(b, recompute, Part::attention) + gathered_for(qkv_proj);
  const Bytes attention_gradients =
      b.q() + 2 * b.k() + b.gathered() + behind_norms + b.q() + b.lse() + b.ring_backward();
  const Bytes mlp_branch =
      in_scratch(b, recompute, Part::mlp) + gathered_for(mlp) + b.gathered() + activation(b, recompute);
  const Bytes behind_h = b.x() + in_scratch(b, recompute, Part::h) + mlp_branch;
  if (recompute.contain(o_proj)) return b.x() + attention + std::max(behind_h, attention_gradients);
  return std::max(behind_h, b.x() + attention + attention_gradients);
}

/// The same of backward_input, whose gradients wait for backward_weight.
inline Bytes backward_input_workspace(const Block& b, const BlockOperations& recompute) {
  const auto gathered_for = [&](BlockOperation operation) { return recompute.contain(operation) ? b.gathered() : 0; };
  const Bytes behind_norms = b.has_qk_norm ? b.q() + b.k() : 0;
  const Bytes attention = in_scratch(b, recompute, Part::attention, true) + gathered_for(qkv_proj);
  const Bytes attention_gradients = std::max(behind_norms + b.q() + b.lse() + b.ring_backward(), b.gathered());
  // Gathered for the products of a chunk, and where they were, its partial sums.
  const Bytes mlp_branch = is_chunked(b, recompute)
                               ? b.gathered() + in_scratch(b, recompute, Part::mlp) + b.f_of_chunk()
                               : in_scratch(b, recompute, Part::mlp, true) + gathered_for(mlp) + b.gathered();
  const Bytes behind_h = b.x() + in_scratch(b, recompute, Part::h, true) + mlp_branch;
  if (recompute.contain(o_proj)) return b.x() + attention + std::max(behind_h, attention_gradients);
  return std::max(behind_h, b.x() + attention + attention_gradients);
}

/// And of backward_weight.
inline Bytes backward_weight_workspace(const Block& b, const BlockOperations& recompute) {
  return b.x() + b.gathered() + (is_chunked(b, recompute) ? (b.G + 1) * b.f_of_chunk() : 0);
}

}  // namespace echelon::formulas
