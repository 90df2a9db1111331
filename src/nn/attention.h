// Causal self-attention (Vaswani et al. 2017, arXiv:1706.03762) with grouped queries (Ainslie et al. 2023,
// arXiv:2305.13245):
//
//     q, k, v = x wq^T, x wk^T, x wv^T (+ biases)      q, k = norm(q), norm(k) per head, if the model has qk_norm
//     q, k = rope(q), rope(k)                          y = softmax(q k^T / sqrt(C), causal) v  wo^T (+ bias)
//
// A token sees those of its own document, where the microbatch says where documents begin.
//
// Heads are cut over the tensor-parallel ranks (nn/head_split.h).
#pragma once

#include "nn/forming.h"
#include "nn/head_split.h"
#include "nn/kv_cache.h"
#include "nn/norm.h"
#include "nn/parallel_linear.h"
#include "nn/rope_tables.h"

#include <array>
#include <optional>

namespace echelon {

class Attention : public Layer {
 public:
  /// Parameters `name`.{q,k,v,o}_proj.{weight,bias} and `name`.{q,k}_norm.weight. `rope` is read at every call, and
  /// must outlive the layer.
  Attention(const LayerOptions& options, const std::string& name, const RopeTables& rope);

  [[nodiscard]] std::vector<Param*> params() override;

  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// All that a backward pass reads: in forward, or again what forward dropped of it (the caller's scope holds it). x
  /// is that of forward, formed again.
  void form(const Forming& forming, Tensor x) const;
  /// y of what was formed.
  void project(Context& context, Tensor y, const Stash& stash) const;
  /// x alone, for backward_weight.
  void set_x(Stash& stash, Tensor x) const;

  /// The next positions of every sequence, from first_position on: x, y [B n, hidden_size]. Their keys and values go
  /// into the cache behind those before. No gradient, no sequence parallelism.
  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const;

 private:
  using Projections = std::array<Tensor, 3>;  // q, k, v or their gradients, [num_tokens, heads of this rank x head_dim]

  [[nodiscard]] Sizes head_sizes(std::int64_t num_heads) const {
    return {options_.num_sequences, options_.seq_len, num_heads, options_.model.head_dim};
  }
  [[nodiscard]] Tensor per_head(Tensor x) const {
    return x.reshaped({x.num_elements() / options_.model.head_dim, options_.model.head_dim});
  }
  [[nodiscard]] bool drops(BlockOperation operation) const { return options_.recompute.operations.contain(operation); }
  /// q, k, v as attention reads them.
  [[nodiscard]] Projections form_projections(const Forming& forming, Tensor x) const;
  [[nodiscard]] std::array<Sizes, 3> projection_sizes(std::int64_t num_tokens) const;
  void rotate(Ops& ops, Tensor x_BTHC, bool inverse, std::int64_t first_position) const;
  void attend(Ops& ops, const Projections& qkv_BTHC, Tensor out, Tensor lse, const AttentionMask& mask) const;
  [[nodiscard]] AttentionMask mask(const Microbatch& microbatch) const;
  [[nodiscard]] Projections take_projections(Stack& workspace, std::int64_t num_tokens) const;
  /// Tensors like `tensors` for the other side of the norms of q and k: in the workspace; the same where there is no
  /// norm.
  [[nodiscard]] Projections take_across_norms(Stack& workspace, const Projections& tensors) const;
  [[nodiscard]] std::int64_t group() const;  // query heads per kv head
  [[nodiscard]] double scale() const;
  /// Gradients of q, k and v as they come out of the projections, or behind their norms if there are some.
  void attention_gradients(Context& context, Tensor dy_full, const Projections& gradients, const Stash& stash) const;

  LayerOptions options_;
  HeadSplit split_;
  const RopeTables& rope_;
  ColumnParallel projections_;                // q, k, v
  std::optional<std::array<Norm, 2>> norms_;  // of q and k
  RowParallel output_;
};

}  // namespace echelon
