// A mixture of experts as the feed-forward branch of a decoder block (Shazeer et al. 2017, arXiv:1701.06538). A router
// chooses k of E experts for each token, and each of these R = N k rows goes through the SwiGLU of its expert:
//
//     z = x wr^T                              in float32, or float64 with float64
//     e_1 ... e_k, w_1 ... w_k = router(z)    ops/operations/mixture/router.h
//     y = sum_j (w_j silu(x wgate[e_j]^T) * (x wup[e_j]^T)) wdown[e_j]^T  [+ SwiGLU of the shared expert, with or
//     without a gate]
//
// No row is padded (Gale et al. 2022, arXiv:2211.15841), and none is dropped unless experts have a capacity: how many
// rows an expert has is known to the device alone, but R is a constant, and so is all memory. The weight is applied
// before wdown, so that no pass stores a row of hidden_size. What the router chose is saved by forward in every format
// of recomputation: a backward pass that chose again could differ from forward in a tie.
//
// Tensor-parallel ranks divide the features of every expert as they divide those of a dense branch: each routes all
// tokens, and its gradients of the weights w_j, and hence of the router, are addends over the ranks. Or each rank
// routes its own tokens: ranks of an expert group have some whole experts each, or features of them, and exchange rows
// in rounds (nn/mixture/expert_exchange.h). The last round is computed first, so that round 0 leaves in the stash what
// backward reads. Backward exchanges and computes the other rounds again. The shared expert is computed while rows
// travel. To generate text, all ranks have the same tokens: each computes the rows of its own experts, as the
// first one chooses, and y is a sum over the ranks.
#pragma once

#include "nn/decoder/branch.h"
#include "nn/decoder/mlp.h"
#include "nn/linear.h"
#include "nn/mixture/expert_exchange.h"
#include "nn/mixture/expert_layers.h"
#include "ops/ops.h"

#include <array>
#include <functional>
#include <optional>

namespace echelon {

class Mixture : public Branch {
 public:
  /// Parameters `name`.gate.weight [E, D], those of the experts `name`.experts (nn/mixture/expert_layers.h), and those
  /// of the MLP `name`.shared_expert and its gate `name`.shared_expert_gate.
  Mixture(const LayerOptions& options, const std::string& name);

  [[nodiscard]] std::vector<Param*> params() override;

  void compute(const ComputePass& pass, Tensor x) const override;
  void project(Context& context, Tensor y, const Stash& stash) const override;
  [[nodiscard]] bool recomputes_from_x() const override {
    return drops(BlockOperation::router) || drops(BlockOperation::experts) || drops_shared();
  }
  /// Rounds after the first are exchanged again.
  [[nodiscard]] bool backward_input_reads_x() const override { return exchange_.is_needed(); }

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
    saved_of_ranks,
    saved_row_slots,
    saved_row_weights,
    saved_row_offsets,
    saved_x_rows,
    saved_gate,
    saved_up,
    saved_activated,
    saved_dy,
    saved_dy_rows,
    saved_dlogits
  };

  /// What the router chose for N tokens: experts, weights and slots [N, k], offsets [E + 1]; and what is known of all
  /// ranks, where experts are on several (ExpertExchange::gather).
  struct Choice {
    Tensor experts, weights, slots, offsets, of_ranks = {};
    [[nodiscard]] std::int64_t num_rows() const { return slots.num_elements(); }
  };
  using Inner = ExpertLayers::Inner;

  /// Rows that have come to this rank: their order, and x of them [Q, D].
  struct Arrived {
    ExpertRows rows;
    Tensor x;
  };
  /// What the rounds of an exchange share: rows of x become rows of y or dx, round by round, and weights their
  /// gradients.
  struct Exchanged {
    ExpertRounds plan;
    Tensor of_ranks, offsets;
    Tensor slots;    // of the rows that are sent
    Tensor x;        // [R, D], or [S, D] in two hops or to all
    Tensor weights;  // [R, 1], or [S, k]
    Tensor dy = {};  // like x
  };

  struct Returned {
    Tensor rows;           // [Q, D]
    Tensor dweights = {};  // [Q, 1]
  };
  struct Round {
    const Exchanged& of;
    int index = 0;
    operator ExpertExchange::Round() const { return {of.plan, index}; }
  };
  /// What is computed while rows travel.
  using Meanwhile = std::function<void()>;

  [[nodiscard]] bool drops(BlockOperation part) const { return options_.recompute.operations.contain(part); }
  [[nodiscard]] bool drops_shared() const { return shared_ && shared_->recomputes_from_x(); }

  /// Places the logits, and the results of rows.
  [[nodiscard]] Tensor place_logits(const ComputePass& pass) const;
  [[nodiscard]] Inner place_inner(const ComputePass& pass) const;
  void choose(Context& context, Tensor logits, const Choice& choice) const;
  /// That, and where rows go.
  void route(Context& context, Tensor logits, const Choice& choice) const;
  /// For benchmarks: logits with which tokens choose experts in turn, k each, with equal weights.
  void force_balance(Context& context, Tensor logits) const;
  /// Rows that stay here.
  [[nodiscard]] ExpertRows rows_of(const Context& context, const Choice& choice) const;
  /// int32 [N, k] in the workspace: the experts of the choice, -1 where a row is beyond the capacity of its expert.
  [[nodiscard]] Tensor within_capacity(Context& context, const Choice& choice) const;
  /// The ranks with parts of a sequence; none: this rank has whole ones.
  [[nodiscard]] std::optional<Group> sequence_parts() const;
  /// Adds what the router chose to the counts of the step, and its losses. Returns their gradient of the logits in the
  /// workspace, or nothing: of ranks with the same tokens, the first alone counts them.
  [[nodiscard]] Tensor balance(Context& context, Tensor logits, const Choice& choice) const;
  /// float64 [B, E]: of whole sequences.
  [[nodiscard]] Tensor counts_of_sequences(Context& context, const Choice& choice) const;
  void router_gradient(Context& context, const Stash& stash, Tensor dweights, Tensor dlogits) const;

  void router_weight_gradient(Context& context, Tensor dlogits, Tensor x);
  /// Room for what the router chose.
  void save_choice(Stash& stash) const;
  /// x or dy of tokens -> of rows that are ordered by expert.
  [[nodiscard]] Tensor permuted(Context& context, Tensor of_tokens, const Choice& choice) const;
  /// partial = this rank's part of y.
  void combine_local(Context& context, const Stash& stash, Tensor partial) const;
  /// partial = that of dx, of the gradients of rows.
  void input_gradient(Context& context, Tensor dlogits, Tensor dx, Tensor dx_rows, Tensor slots) const;

  // With experts on several ranks: nn/decoder/mixture_exchange.cpp.
  [[nodiscard]] Exchanged exchanged(Context& context, const Stash& stash) const;
  /// x or dy of tokens -> of the rows that are sent.
  void permute_sent(Context& context, Tensor of_tokens, const Exchanged& of, Tensor rows) const;
  void permute_x(Context& context, const Stash& stash, const Exchanged& of) const;
  /// Brings a round's rows here, and computes what is before their activation. Of Q rows operations take those that
  /// have come.
  void receive(Context& context, const Round& round, const Arrived& to, const Inner& inner,
               const Meanwhile& meanwhile) const;
  /// The same for a round that is computed again. Rows of dy come meanwhile, into dy_rows [Q, D].
  void receive_both(Context& context, const Round& round, const Arrived& to, const Inner& inner, Tensor dy_rows) const;
  /// Rows in the order in which they came -> ordered by expert, in to.x; and where those of each expert are.
  [[nodiscard]] ExpertRows in_order(Context& context, const Round& round, Tensor x, const Arrived& to) const;
  void receive_dy(Context& context, const Round& round, const ExpertRows& at, Tensor dy_rows,
                  const Meanwhile& meanwhile) const;
  /// Of the rows of a round those that have come, with which so many matmuls are computed next.
  [[nodiscard]] ExpertRows rows_that_came(Context& context, const Round& round, const ExpertRows& all,
                                          int num_matmuls) const;
  /// Rows in the order in which they came -> ordered by expert.
  void permute_first(Context& context, Tensor from, const ExpertRows& rows, Tensor to) const;
  /// The inverse, into the workspace; or, of tokens that were gathered, sums of their rows.
  [[nodiscard]] Tensor as_they_came(Context& context, const Round& round, Tensor rows, const ExpertRows& from) const;
  /// The rows of a round go back: dx with the gradients of weights.
  void give_back(Context& context, const Round& round, const ExpertRows& from, const Returned& rows,
                 const Meanwhile& meanwhile) const;
  void receive_dropped(Context& context, const Stash& stash) const;
  /// partial = y of the experts, of_shared = that of the shared expert, if there is one.
  void combine_exchanged(Context& context, const Stash& stash, Tensor partial, Tensor of_shared) const;
  // dx = that of the experts; `of_shared` has that of the shared expert, if there is one.
  struct InputGradients {
    Tensor dy, activated, dlogits;  // of all tokens; room for the others
    Tensor dx;
  };
  void exchanged_backward_input(Context& context, const InputGradients& to, const Mlp::Gradients& of_shared,
                                Stash& stash) const;
  void exchanged_backward_weight(Context& context, Stash& stash);
  void exchanged_backward(Context& context, Tensor dx, const Mlp::Gradients& of_shared, Stash& stash);
  /// Plans memory for a round after the first, which a pass has only where loads are uneven.
  void reserve_round(Context& context, const Exchanged& of, const Arrived& arrived, const Inner& inner) const;
  /// After all rounds: the gradients of the router's weights.
  [[nodiscard]] Tensor returned_dweights(Context& context, const Exchanged& of, const Choice& choice) const;

  [[nodiscard]] Choice take_choice(Stack& memory, std::int64_t num_tokens) const;
  [[nodiscard]] Choice saved_choice(const Stash& stash) const;
  [[nodiscard]] Inner saved_inner(const Stash& stash) const;
  [[nodiscard]] Arrived saved_arrived(const Stash& stash) const;
  /// Where the last one is; of a pass that stores it, or as saved.
  [[nodiscard]] Arrived place_arrived(const ComputePass& pass) const;
  /// Of what was chosen, exchanged and computed before the activation. Frozen experts, whose router is frozen, too,
  /// have no weight gradients.
  [[nodiscard]] LastReader last_reader() const {
    return experts_.train() ? LastReader::backward_weight : LastReader::backward_input;
  }
  /// What backward_input computes, for backward_weight if that `reads` it; else in the workspace.
  [[nodiscard]] Tensor place_gradient(Context& context, Stash& stash, const StashEntry& entry, bool reads,
                                      const Sizes& sizes) const {
    return reads ? stash.save_gradient(entry, options_.dtype, sizes) : context.workspace.take(options_.dtype, sizes);
  }
  /// dy of backward_input.
  [[nodiscard]] Tensor all_tokens(Context& context, Tensor dy, Stash& stash) const;
  [[nodiscard]] DType score_dtype() const { return accumulate_dtype(options_.dtype); }
  [[nodiscard]] const MixtureSpec& spec() const { return options_.model.mixture; }
  /// N, of the tokens that this rank routes.
  [[nodiscard]] std::int64_t num_tokens() const {
    return options_.divides_expert_features ? options_.num_tokens() : options_.num_local_tokens();
  }
  /// Of tensors with rows of these tokens; and with the rows that this rank computes.
  [[nodiscard]] RowKind token_rows() const {
    return options_.divides_expert_features ? RowKind::sequence : RowKind::local;
  }
  [[nodiscard]] RowKind computed_rows() const { return exchange_.is_needed() ? RowKind::none : token_rows(); }
  /// The first of them among all of the region.
  [[nodiscard]] std::int64_t first_token() const {
    return num_tokens() < options_.num_tokens() ? options_.tp_rank * num_tokens() : 0;
  }
  /// Rows that this rank computes at a time: R, or Q.
  [[nodiscard]] std::int64_t num_rows() const {
    return exchange_.is_needed() ? exchange_.most_rows() : num_tokens() * spec().num_experts_per_tok;
  }
  /// That of this layer; empty of an empty tensor.
  [[nodiscard]] Tensor row_of(Tensor of_layers) const {
    return of_layers.exists() ? of_layers.rows(options_.mixture_row, 1).flat() : Tensor();
  }
  [[nodiscard]] Tensor take_rows(Context& context, std::int64_t num_rows, std::int64_t width) const {
    return context.workspace.take(options_.dtype, {num_rows, width});
  }

  LayerOptions options_;
  LayerOptions region_;  // for the operators of tensor parallelism: of one rank where experts are whole
  RouterRule rule_;
  Param router_;
  ExpertLayers experts_;
  ExpertExchange exchange_;
  std::optional<Mlp> shared_;
};

}  // namespace echelon
