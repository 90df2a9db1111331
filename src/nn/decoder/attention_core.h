// The core of attention, between the queries, keys and values of a rank's heads and its result:
//
//     out = softmax(q k^T / sqrt(C), causal) v        q, out [B, T, H, C]        k, v [B, T, K, C]
//
// B sequences, T tokens, H query heads, K kv heads, C head_dim. If the microbatch has document starts, a token attends
// to its own document only.
#pragma once

#include "nn/compute_pass.h"
#include "nn/decoder/kv_cache.h"
#include "nn/key_attention.h"

namespace echelon {

class AttentionCore {
 public:
  virtual ~AttentionCore() = default;

  /// Computes out and saves it with its log-sum-exps; where forward dropped them, recomputes them in a backward pass.
  virtual void compute(const ComputePass& pass, const Qkv& qkv) const = 0;
  /// What `compute` saved: out [B T, H C]. In float8 with room for its largest magnitude, which forward's matmul leaves
  /// for backward.
  [[nodiscard]] virtual Tensor out(const Stash& stash) const = 0;

  /// The gradient of out, [B T, H C], and room for the row sums of dout * out (delta of Dao et al. 2022,
  /// arXiv:2205.14135, algorithm 4), which `backward` fills.
  struct OutGradient {
    Tensor dout, delta;
  };
  [[nodiscard]] virtual OutGradient take_out_gradient(Stack& workspace, const Stash& stash) const = 0;
  /// dqkv, of the sizes of qkv, from dout.
  virtual void backward(Context& context, const Qkv& qkv, const OutGradient& of_out, const Qkv& dqkv,
                        const Stash& stash) const = 0;

  /// Saves nothing: out [B, n, H, C] of the last n of the T positions of k and v, which see the keys from `begin` on,
  /// if it exists. lse [B, H, n] is scratch.
  virtual void decode(Ops& ops, const Qkv& qkv, Tensor begin, const Attended& results) const = 0;
};

/// Of a rank that has all tokens of its heads, or its part of them (options.tokens).
[[nodiscard]] std::unique_ptr<AttentionCore> make_attention_core(const LayerOptions& options, const HeadSplit& split);

/// Adds k and v of new positions to the cache, and attends with q to what it has then. All of [B, n, heads, C].
struct CachedAttention {
  const KvCache& cache;
  std::int64_t first_position = 0;
  Tensor out;
};
void attend_to_cache(Context& context, const LayerOptions& options, const AttentionCore& core, const Qkv& qkv,
                     const CachedAttention& to);

}  // namespace echelon
