// The experts that this rank has, or its features of them, on rows that are ordered by expert
// (ops/operations/mixture/experts.h):
//
//     gate, up = rows wgate[e]^T, rows wup[e]^T
//     y = (w silu(gate) up) wdown[e]^T             w: the weight of a row
#pragma once

#include "nn/context.h"
#include "nn/param.h"

#include <string>
#include <vector>

namespace echelon {

/// Where rows are, and their weights: slots and weights [M, k] of M tokens, or of M rows with k = 1; offsets of the
/// experts of this rank. Buffers of rows may be longer: the first `count` rows are computed.
struct ExpertRows {
  Tensor slots, weights, offsets;
  std::int64_t count = 0;
  std::int64_t expected = -1;  // of them, those that are planned to have experts; -1: all
  /// Of rows with k = 1.
  [[nodiscard]] ExpertRows first(std::int64_t num_rows) const {
    return {slots.rows(0, num_rows), weights.rows(0, num_rows), offsets, num_rows};
  }
};

class ExpertLayers {
 public:
  /// Parameters `name`.{gate,up}_proj.weight [E, F, D] and `name`.down_proj.weight [E, D, F], of which this rank has
  /// some experts (expert parallelism), features (tensor parallelism), or features of some experts.
  ExpertLayers(const LayerOptions& options, const std::string& name);

  [[nodiscard]] std::vector<Param*> params() { return {&gate_, &up_, &down_}; }
  /// Else they are the base of adapters, and have no weight_gradients.
  [[nodiscard]] bool train() const { return gate_.trains; }
  /// Features of each expert on this rank.
  [[nodiscard]] std::int64_t width() const { return down_.local_sizes()[2]; }

  /// Before the activation; gradients are stored in their place.
  struct Inner {
    Tensor gate, up;  // [rows, width()]
    [[nodiscard]] Inner first(std::int64_t count) const { return {gate.rows(0, count), up.rows(0, count)}; }
  };
  void inner_products(Ops& ops, Tensor x_rows, const ExpertRows& rows, const Inner& inner) const;
  /// Takes workspace within the caller's scope.
  void outputs(Context& context, const Inner& inner, const ExpertRows& rows, Tensor y_rows) const;

  /// What backward computes of rows: with weights, what wdown's gradient reads; and the gradient of the weights.
  struct RowGradients {
    Tensor dy, activated, dweights;
  };
  /// Overwrites inner with its gradient.
  void row_gradients(Context& context, const Inner& inner, const ExpertRows& rows, const RowGradients& of) const;
  void input_gradients(Ops& ops, const Inner& dinner, const ExpertRows& rows, Tensor dx_rows) const;
  /// Adds to the gradients of the weights: of wdown, which reads dy, and of the others.
  struct WeightInputs {
    Tensor dy, activated, x;
  };
  void weight_gradients(Ops& ops, const Inner& dinner, const ExpertRows& rows, const WeightInputs& of) {
    down_weight_gradient(ops, rows, of);
    inner_weight_gradients(ops, dinner, rows, of.x);
  }
  void down_weight_gradient(Ops& ops, const ExpertRows& rows, const WeightInputs& of);
  void inner_weight_gradients(Ops& ops, const Inner& dinner, const ExpertRows& rows, Tensor x_rows);

 private:
  Param gate_, up_, down_;
};

}  // namespace echelon
