// Delays the gradient of a norm, or a row_exp, until the next operation is known, since one kernel does both it and
//
//     a norm of as many rows            of which a backward pass recomputes the result: a row after its gradient
//     the cross_entropy of its rows     a row's loss after its sum, and the last block adds the losses
//
// Another operation, and code that waits for results, first gets what is held. An element's bits do not depend on this,
// but for the sum of the losses, which has another order.
#pragma once

#include "ops/operations/cross_entropy.h"
#include "ops/operations/layer_norm.h"
#include "ops/operations/rms_norm.h"

#include <optional>
#include <utility>
#include <variant>

namespace echelon::cuda {

/// Whether the threads of a block keep a row of x, and sums for its columns, in their registers. Rows that are wider
/// take a kernel for each gradient of a norm.
[[nodiscard]] bool keeps_row_beside_sums(const Tensor& x);

/// Of LayerNorm and RMSNorm, and what follows such a first operation.
template <class First>
struct Follower;
template <>
struct Follower<LayerNormBackwardArgs> {
  using Args = LayerNormArgs;
};
template <>
struct Follower<RmsNormBackwardArgs> {
  using Args = RmsNormArgs;
};
template <>
struct Follower<RowExpArgs> {
  using Args = CrossEntropyArgs;
};

/// An operation, and the one that follows it, if one kernel does both.
template <class First>
struct Pair {
  First first;
  std::optional<typename Follower<First>::Args> next = std::nullopt;
};

class PairedOperations {
 public:
  /// Nothing may be held before.
  void hold(const LayerNormBackwardArgs& args) { held_ = args; }
  void hold(const RmsNormBackwardArgs& args) { held_ = args; }
  void hold(const RowExpArgs& args) { held_ = args; }

  /// The operation that is held together with this one, if one kernel does both; it is not held any more.
  [[nodiscard]] std::optional<Pair<LayerNormBackwardArgs>> completed_by(const LayerNormArgs& args);
  [[nodiscard]] std::optional<Pair<RmsNormBackwardArgs>> completed_by(const RmsNormArgs& args);
  [[nodiscard]] std::optional<Pair<RowExpArgs>> completed_by(const CrossEntropyArgs& args);

  /// f(pair without a second operation) of what is held, which is not held any more.
  template <class F>
  void release(F&& f) {
    std::visit(
        [&]<class Args>([[maybe_unused]] const Args& args) {
          if constexpr (!std::is_same_v<Args, std::monostate>) f(Pair<Args>{args});
        },
        std::exchange(held_, std::monostate()));
  }

 private:
  template <class First>
  [[nodiscard]] std::optional<Pair<First>> completed(const typename Follower<First>::Args& args);

  std::variant<std::monostate, LayerNormBackwardArgs, RmsNormBackwardArgs, RowExpArgs> held_;
};

}  // namespace echelon::cuda
