// Token embedding, sharded over the tensor-parallel ranks along the vocabulary, and learned positions if the model has
// them. The first layer: no x, no dx.
//
//     y[n] = m w[token[n]] + p[n mod T]        m: embedding_multiplier
//
// A rank that does not own a token's row contributes exact zeros, so the sum over the ranks rounds nothing.
#pragma once

#include "nn/layer.h"

#include <optional>

namespace echelon {

class Embedding : public Layer {
 public:
  /// "model.embed_tokens.weight", unless it borrows `tied_weight`, and "model.embed_positions.weight".
  explicit Embedding(const LayerOptions& options, Param* tied_weight = nullptr);
  Embedding(const Embedding&) = delete;  // weight_ may point into it
  Embedding& operator=(const Embedding&) = delete;

  [[nodiscard]] std::vector<Param*> params() override;

  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// Of new positions (nn/decoder/decode.h): tokens int32 [B n] -> y [B n, hidden_size].
  void decode(Context& context, Tensor tokens, Tensor y, std::int64_t num_sequences, std::int64_t first_position) const;

 private:
  enum Saved : int { saved_dy };  // in the stash

  void look_up(Context& context, Tensor tokens, Tensor y) const;
  void weight_gradient(Context& context, Tensor dy);
  [[nodiscard]] bool trains() const { return weight_->trains || (positions_ && positions_->trains); }
  [[nodiscard]] double multiplier() const;
  [[nodiscard]] std::int64_t first_token() const;  // of this rank's y

  LayerOptions options_;
  std::optional<Param> own_weight_;
  Param* weight_;
  std::optional<Param> positions_;
};

}  // namespace echelon
