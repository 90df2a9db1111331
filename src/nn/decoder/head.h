// Final norm, vocabulary-parallel matmul with the head's weight, and cross entropy, in chunks of tokens: never all
// logits at once.
#pragma once

#include "nn/layer.h"

#include <memory>

namespace echelon {

/// The last layer: y and dy are empty; adds to microbatch.loss_sum. Where a gradient is wanted, forward does nothing:
/// backward computes the logits of a chunk, its loss and its gradients while they are in the caches. So the logits are
/// computed once, and never stored.
class Head : public Layer {
 public:
  /// The logits of some tokens for generation and evaluation: x [n, hidden_size] -> logits [n, columns of this rank] in
  /// accumulate_dtype. No gradient.
  virtual void logits(Context& context, Tensor x, Tensor logits) const = 0;
  /// Columns of this rank, padding included, and the first one's token.
  [[nodiscard]] virtual std::int64_t num_columns() const = 0;
  [[nodiscard]] virtual std::int64_t first_column() const = 0;
};

/// Parameters "model.norm.{weight,bias}" and "lm_head.weight", unless it borrows `tied_weight`.
[[nodiscard]] std::unique_ptr<Head> make_head(const LayerOptions& options, Param* tied_weight = nullptr);

}  // namespace echelon
