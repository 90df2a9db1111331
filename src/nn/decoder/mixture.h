// A mixture of experts as the feed-forward branch of a decoder block (Shazeer et al. 2017, arXiv:1701.06538). A router
// chooses k of E experts for each token, and each of these R = N k rows goes through the SwiGLU of its expert:
//
//     z = x wr^T                              in float32, or float64 with float64
//     e_1 ... e_k, w_1 ... w_k = router(z)    ops/operations/router.h
//     y = sum_j (w_j silu(x wgate[e_j]^T) * (x wup[e_j]^T)) wdown[e_j]^T  [+ SwiGLU of the shared expert]
//
// No row is padded or dropped (Gale et al. 2022, arXiv:2211.15841): how many rows an expert has is known to the device
// alone, but R is a constant, and so is all memory. The weight is applied before wdown, so that no pass stores a row of
// hidden_size. What the router chose is saved by forward in every format of recomputation: a backward pass that chose
// again could differ from forward in a tie.
//
// Tensor-parallel ranks divide the features of every expert as they divide those of a dense branch. Each routes all
// tokens; its gradients of the weights w_j, and hence of the router, are addends over the ranks.
#pragma once

#include "nn/decoder/branch.h"
#include "nn/decoder/mlp.h"
#include "nn/linear.h"
#include "ops/ops.h"

#include <optional>

namespace echelon {

class Mixture : public Branch {
 public:
  /// Parameters `name`.gate.weight [E, D], `name`.experts.{gate,up}_proj.weight [E, F, D],
  /// `name`.experts.down_proj.weight [E, D, F], and those of the MLP `name`.shared_expert.
  Mixture(const LayerOptions& options, const std::string& name);

  [[nodiscard]] std::vector<Param*> params() override;

  void compute(const ComputePass& pass, Tensor x) const override;
  void project(Context& context, Tensor y, const Stash& stash) const override;
  [[nodiscard]] bool recomputes_from_x() const override;

  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const override;

 private:
  enum Saved : int {  // in the stash
    saved_logits,
    saved_experts,
    saved_weights,
    saved_slots,
    saved_offsets,
    saved_gate,
    saved_up,
    saved_activated,
    saved_dy,
    saved_dlogits
  };

  /// What the router chose for N tokens: experts, weights and slots [N, k], offsets [E + 1].
  struct Choice {
    Tensor experts, weights, slots, offsets;
    [[nodiscard]] std::int64_t num_rows() const { return slots.num_elements(); }
  };
  /// Before the activation; gradients are stored in their place.
  struct Inner {
    Tensor gate, up;  // [R, F of this rank]
  };
  /// Of the rows of experts, what both backward passes compute; each has one reader after it.
  struct RowGradients {
    Tensor dy;         // [R, D]: in the workspace of the caller's scope
    Tensor activated;  // [R, F]: with weights, what wdown's gradient reads
    Tensor dlogits;    // [N, E]
  };

  void route(Ops& ops, Tensor logits, const Choice& choice) const;
  void inner_products(Context& context, Tensor x, const Choice& choice, const Inner& inner) const;
  /// partial = this rank's part of y.
  void combine(Context& context, const Inner& inner, const Choice& choice, Tensor partial) const;
  /// Overwrites inner with its gradient.
  void row_gradients(Context& context, const Stash& stash, const RowGradients& to) const;
  void weight_gradients(Context& context, Tensor x_full, const RowGradients& of, const Stash& stash);
  void input_gradients(Context& context, Tensor dlogits, Tensor dx, const Stash& stash) const;

  [[nodiscard]] Choice take_choice(Stack& memory, std::int64_t num_tokens) const;
  [[nodiscard]] Choice saved_choice(const Stash& stash) const;
  [[nodiscard]] Inner saved_inner(const Stash& stash) const;
  [[nodiscard]] DType score_dtype() const { return accumulate_dtype(options_.dtype); }
  [[nodiscard]] const MixtureSpec& spec() const { return options_.model.mixture; }
  [[nodiscard]] Tensor take_rows(Context& context, std::int64_t num_rows, std::int64_t width) const {
    return context.workspace.take(options_.dtype, {num_rows, width});
  }
  /// x or dy of tokens -> of the experts' rows.
  [[nodiscard]] Tensor permuted(Context& context, Tensor of_tokens, const Choice& choice) const;

  LayerOptions options_;
  RouterRule rule_;
  Slice features_;
  Param router_, gate_, up_, down_;
  std::optional<Mlp> shared_;
};

}  // namespace echelon
