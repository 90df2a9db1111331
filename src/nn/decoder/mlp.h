// The feed-forward branch of a decoder block, sharded over the tensor-parallel ranks along its inner width F:
//
//     SwiGLU (Shazeer 2020, arXiv:2002.05202)    y = (silu(x wgate^T) * (x wup^T)) wdown^T; GeGLU has gelu for silu
//     GELU   (Radford et al. 2019)               y = gelu(x wup^T + bup) wdown^T + bdown
//
// With a gate of tokens (nn/mixture/token_gate.h), what wdown reads is weighted by it.
#pragma once

#include "nn/decoder/branch.h"
#include "nn/token_chunks.h"

#include <optional>

namespace echelon {

class Mlp : public Branch {
 public:
  /// Parameters `name`.{gate,up,down}_proj.{weight,bias}; GELU has no gate. With a gate of tokens, of SwiGLU and not in
  /// chunks, also `name`_gate.weight.
  Mlp(const LayerOptions& options, const std::string& name, bool gates_tokens = false);

  [[nodiscard]] std::vector<Param*> params() override;

  void compute(const ComputePass& pass, Tensor x) const override;
  /// compute in two steps: room for its results; then their matmuls, in a pass that runs them.
  void prepare(const ComputePass& pass, Tensor x) const;
  void compute_prepared(Context& context, const Stash& stash) const;
  /// The same in two parts: half of the matmuls, with those of project(), are in the first. It leaves half of the
  /// tokens of up to the second, unless tokens are gathered or rounded together.
  void start_prepared(Context& context, const Stash& stash) const;
  void finish_prepared(Context& context, const Stash& stash) const;
  void project(Context& context, Tensor y, const Stash& stash) const override;
  [[nodiscard]] bool recomputes_from_x() const override;

  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// Backward passes in two parts, between which something else is computed: the gradients of the inner features; then
  /// that of x. In backward also those of the weights, half of all matmuls in each part where tokens are not gathered.
  struct Gradients {
    Tensor dy, dx;
    Tensor dlogits = {};
    std::vector<Tensor> amaxes = {};  // of the gradients of inner, if they are found where these are written
  };
  /// Takes workspace that both parts of backward need.
  [[nodiscard]] Gradients gradients(Context& context, Tensor dy, Tensor dx) const;
  void backward_inner(Context& context, const Gradients& of, const Stash& stash);
  void backward_outer(Context& context, const Gradients& of, Stash& stash);
  void backward_input_inner(Context& context, const Gradients& of, Stash& stash) const;
  void backward_input_outer(Context& context, const Gradients& of, Stash& stash) const;

  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const override;

 private:
  enum Saved : int {
    saved_activated,
    saved_dy,
    saved_dlogits,
    saved_logits,
    saved_amaxes,
    saved_inner_0,
    saved_inner_1
  };  // in the stash

  // What the first matmuls give: [num_tokens, F of this rank] gate and up, or up alone, before the activation; and the
  // logits [num_tokens, 1] of a gate of tokens.
  using Inner = std::vector<Tensor>;

  /// A gated branch whose first matmuls read what is stored of x, some tokens at a time.
  [[nodiscard]] bool halves(Tensor x) const;

  void activate(Context& context, const Inner& inner, Tensor activated) const;
  /// In the workspace, with room for its largest magnitude where nothing writes to it later.
  [[nodiscard]] Tensor take_activated(Context& context, const Sizes& sizes) const;
  /// Of the gradients of inner.
  [[nodiscard]] std::vector<Tensor> take_amaxes(Context& context) const;
  [[nodiscard]] static Inner with_amaxes(Inner dinner, const std::vector<Tensor>& amaxes);
  /// The gradients of inner, and activated, that backward_input saved, with their largest magnitudes.
  [[nodiscard]] Inner saved_gradients(const Stash& stash) const;
  [[nodiscard]] Tensor saved_activation(const Stash& stash) const;
  /// In place: inner -> dinner, dactivated -> activated, recomputed. dbias: of GELU, if it is wanted.
  struct ActivationGradients {
    Inner dinner;
    Tensor dactivated, activated, dbias = {};
  };
  void activation_gradients(Ops& ops, const Inner& inner, const ActivationGradients& of) const;
  /// dy of all tokens -> the gradients of inner, in its place but for logits, and activated.
  struct InnerGradients {
    Inner dinner;
    Tensor activated, dbias = {}, dlogits = {};
  };
  void inner_gradients(Context& context, const Inner& inner, LinearOperand& dy, const InnerGradients& of) const;
  /// Of GELU; empty if there is none, or if it is frozen.
  [[nodiscard]] Tensor bias_gradient() const { return gelu_bias_ && gelu_bias_->trains ? gelu_bias_->grad : Tensor(); }
  [[nodiscard]] Inner saved_inner(const Stash& stash) const;
  /// Room for dy of all tokens.
  [[nodiscard]] Tensor save_dy(Stash& stash) const;
  [[nodiscard]] Inner take_inner(Context& context, std::int64_t num_tokens) const;

  // In chunks of tokens: mlp_chunks.cpp.
  [[nodiscard]] bool is_chunked() const { return options_.mlp_chunk.max_tokens > 0 && recomputes_from_x(); }
  [[nodiscard]] std::vector<TokenChunk> chunks() const;
  void project_chunks(Context& context, Tensor y, const Stash& stash) const;
  void backward_chunks(Context& context, Tensor dy, Tensor dx, const Stash& stash);
  void backward_input_of_chunks(Context& context, Tensor dy, Tensor dx, Stash& stash) const;
  void backward_weight_of_chunks(Context& context, const Stash& stash);
  /// What a chunk's backward pass has, of its tokens alone.
  struct ChunkGradients {
    Tensor x, activated;
    LinearOperand& dy;
    Inner dinner;
  };
  struct ChunkedPass {
    Tensor x_full, dy_full, dbias = {};
    bool needs_weights = true;  // their gradients
  };
  /// visit(chunk, gradients) for each chunk, from x and dy of all tokens.
  template <class Visit>
  void for_gradients(Context& context, const ChunkedPass& pass, const Visit& visit) const;

  LayerOptions options_;
  bool gates_tokens_;
  Slice features_;
  ColumnParallel inner_;            // gate and up, or up without its bias:
  std::optional<Param> gelu_bias_;  // added where GELU reads the matmul
  RowParallel down_;
};

}  // namespace echelon
