// Causal self-attention (Vaswani et al. 2017, arXiv:1706.03762) with grouped queries (Ainslie et al. 2023,
// arXiv:2305.13245):
//
//     q, k, v = x wq^T, x wk^T, x wv^T (+ biases)      q, k = norm(q), norm(k), if the model has qk_norm
//     q, k, v = clip(q), clip(k), clip(v), if the model has clip_qkv
//     q, k = rope(q), rope(k)                          y = core(q, k, v) wo^T (+ bias) nn/decoder/attention_core.h
//
// Heads are sharded over the tensor-parallel ranks (nn/head_split.h).
#pragma once

#include "nn/decoder/attention_core.h"
#include "nn/decoder/branch.h"
#include "nn/decoder/rope_tables.h"
#include "nn/norm.h"

namespace echelon {

class Attention : public Branch {
 public:
  /// Parameters `name`.{q,k,v,o}_proj.{weight,bias} and `name`.{q,k}_norm.weight. `rope` is read at every call, and
  /// must outlive the layer.
  Attention(const LayerOptions& options, const std::string& name, const RopeTables& rope);

  [[nodiscard]] std::vector<Param*> params() override;

  void compute(const ComputePass& pass, Tensor x) const override;
  void project(Context& context, Tensor y, const Stash& stash) const override;
  [[nodiscard]] bool recomputes_from_x() const override { return drops(BlockOperation::qkv_proj); }

  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// No sequence parallelism.
  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const override;

 private:
  enum Saved : int {
    saved_q,
    saved_k,
    saved_v,
    saved_q_product,
    saved_k_product,
    saved_dy,
    saved_dq,
    saved_dk,
    saved_dv,
    saved_amaxes
  };  // in the stash

  [[nodiscard]] bool drops(BlockOperation operation) const { return options_.recompute.operations.contain(operation); }

  // A Qkv is [num_tokens, heads of this rank x head_dim] each, as the projections have it; norms and the core view it
  // by heads.
  [[nodiscard]] Sizes sizes_of(std::size_t i, std::int64_t num_tokens) const;
  /// The rows that q and k are normalised by: [num_tokens x heads, head_dim], or x itself.
  [[nodiscard]] Tensor norm_rows(Tensor x) const;
  [[nodiscard]] Tensor heads_BTHC(Tensor x, std::int64_t num_sequences) const;  // [B, T, heads, head_dim]
  [[nodiscard]] Qkv heads_BTHC(const Qkv& qkv) const;
  /// With room in `places`, float32 of amax_sizes(), for the largest magnitudes that are found where these gradients
  /// are written.
  [[nodiscard]] Qkv measured(const Qkv& dqkv, const Tensor& places) const;
  [[nodiscard]] Sizes amax_sizes() const { return {options_.is_float8 ? 2 : 0}; }
  [[nodiscard]] Qkv take_qkv(Stack& workspace, std::int64_t num_tokens) const;
  /// The outputs of the norms of q and k: tensors like `qkv` in the workspace; `qkv` itself without norms.
  [[nodiscard]] Qkv place_norm_outputs(Stack& workspace, const Qkv& qkv) const;

  [[nodiscard]] Qkv compute_qkv(const ComputePass& pass, Tensor x) const;
  /// From the gradient of y to those of q, k and v before RoPE, in `dqkv` or, with norms, in the norms' outputs.
  [[nodiscard]] Qkv backward_to_norms(Context& context, LinearOperand& dy_full, const Qkv& dqkv,
                                      const Stash& stash) const;
  void clip(Context& context, Tensor x) const {
    if (options_.model.clip_qkv > 0) context.ops.clip({.x = x, .limit = options_.model.clip_qkv});
  }
  /// Of v by its clipped values, of q and k by those that are computed again.
  void clip_backward(Context& context, const Qkv& d, const Stash& stash) const;
  /// which: 0 for q, 1 for k.
  void rotate(Context& context, std::size_t which, Tensor x_BTHC, bool inverse, std::int64_t first_position) const;

  LayerOptions options_;
  std::string name_;
  HeadSplit split_;
  const RopeTables& rope_;
  ColumnParallel projections_;  // q, k, v
  std::vector<Norm> norms_;     // of q and k, or none
  std::unique_ptr<AttentionCore> core_;
  RowParallel output_;
};

}  // namespace echelon
