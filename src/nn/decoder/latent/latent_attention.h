// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): keys and values of all heads are expanded
// from one small vector of a token, and queries may be:
//
//     c_q = norm(x w_qa^T)     q = c_q w_qb^T, or x w_q^T     c = norm(x w_a^T)     r = rope(x w_r^T)
//     k[h], v[h] = [r | ...], [... | 0] of c w_b^T            ops/operations/latent_attention.h
//     y = core(rope(q), k, v) w_o^T                           without the columns that pad values
//
// The latents c_q, c and r are whole on every tensor-parallel rank, for the tokens that it has between the regions.
// The matmuls that expand them start the region: heads are sharded there (nn/head_split.h).
#pragma once

#include "nn/decoder/attention_core.h"
#include "nn/decoder/branch.h"
#include "nn/decoder/rope_tables.h"
#include "nn/norm.h"

namespace echelon {

class LatentAttention : public Branch {
 public:
  /// Parameters `name`.{q_proj | q_a_proj, q_a_layernorm, q_b_proj, kv_a_proj, k_rope_proj, kv_a_layernorm, kv_b_proj,
  /// o_proj}.weight. `rope` is read at every call, and must outlive the layer.
  LatentAttention(const LayerOptions& options, const std::string& name, const RopeTables& rope);

  [[nodiscard]] std::vector<Param*> params() override;

  void compute(const ComputePass& pass, Tensor x) const override;
  void project(Context& context, Tensor y, const Stash& stash) const override;
  [[nodiscard]] bool recomputes_from_x() const override { return drops_qkv(); }

  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// Caches expanded keys and padded values. No sequence parallelism.
  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const override;

 private:
  enum Saved : int { saved_q, saved_k, saved_v, saved_q_latent, saved_latent, first_gradient };  // in the stash

  /// Of queries that are expanded.
  struct QueryLatent {
    Linear down;
    Norm norm;
  };
  /// Gradients that the weights' gradients read: of y, of what the region's matmuls give, and of the matmuls before.
  struct Gradients {
    Tensor dy, dq, dexpanded, dq_latent, dlatent, drope;
  };

  [[nodiscard]] bool drops_qkv() const { return options_.recompute.operations.contain(BlockOperation::qkv_proj); }
  [[nodiscard]] Tensor heads_BTHC(Tensor x, std::int64_t num_sequences) const;
  [[nodiscard]] Qkv saved_qkv(const Stash& stash) const;
  [[nodiscard]] Tensor take_like(Context& context, Tensor x) const { return context.workspace.take(x.dtype, x.sizes); }
  [[nodiscard]] Sizes sizes_of_qkv(std::int64_t num_tokens) const;
  [[nodiscard]] std::int64_t expanded_width() const;  // of a rank's heads
  /// k and v of c w_b^T and r.
  void expand_keys(Context& context, Tensor expanded, Tensor rope, const Qkv& qkv) const;
  void rotate(Context& context, Tensor x_BTHC, bool inverse, std::int64_t first_position = 0) const;
  [[nodiscard]] Tensor rope_BTHC(Tensor rope, std::int64_t num_sequences) const;
  /// The attention's result without the columns that pad it; in the workspace.
  [[nodiscard]] Tensor shortened(Context& context, Tensor out) const;

  template <class Take>
  [[nodiscard]] Gradients take_gradients(const Take& take) const;
  /// All others from d.dy. through(norm, dy, dx) is the backward pass of a norm.
  template <class Through>
  void backward_to_latents(Context& context, const Gradients& d, const Stash& stash, const Through& through) const;
  void input_gradient(Context& context, const Gradients& d, Tensor dx) const;
  void weight_gradients(Context& context, const Gradients& d, const Stash& stash);

  LayerOptions options_;
  std::string name_;
  HeadSplit split_;
  const RopeTables& rope_;
  std::optional<QueryLatent> query_;
  ColumnParallel expand_query_;  // of the latent, or of x
  Linear down_, rope_proj_;
  Norm norm_;
  ColumnParallel expand_;
  std::unique_ptr<AttentionCore> core_;
  RowParallel output_;
};

}  // namespace echelon
