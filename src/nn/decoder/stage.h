// The layers of one virtual pipeline stage, in order. A unit is a block of the stage: the embedding, a decoder block,
// or the head with the loss.
#pragma once

#include "nn/layer.h"
#include "spec/stage_layout.h"

#include <array>
#include <memory>
#include <span>

namespace echelon {

class DecoderBlock;
class Embedding;
class Head;
struct DecodeArgs;
struct RopeTables;

class Stage {
 public:
  /// The head borrows `tied_weight` where the embedding's stage, which has it, is on the same rank.
  Stage(const LayerOptions& options, const StageLayers& layers, Param* tied_weight = nullptr);
  ~Stage();

  [[nodiscard]] int num_units() const { return static_cast<int>(units_.size()); }
  [[nodiscard]] Layer& unit(int index) { return *units_[static_cast<std::size_t>(index)]; }

  /// The parameters of unit `index`; index == num_units(): the tied weight alone if this stage holds a copy of it, else
  /// nothing.
  [[nodiscard]] std::vector<Param*> unit_params(int index);
  [[nodiscard]] bool has_tied_weight() const { return own_tied_weight_ != nullptr; }
  [[nodiscard]] Param* tied_weight() const { return tied_weight_; }  // its own or borrowed one, if any
  [[nodiscard]] Head& head();                                        // of a stage with has_head

  /// Two tensors [n seq_len, rotary_dim / 2] in accumulate_dtype, n the number of model.ropes(); empty sizes if the
  /// model has no RoPE, or if positions come with each microbatch.
  [[nodiscard]] Sizes rope_table_sizes() const;
  void bind_rope_tables(Ops& ops, Tensor cos, Tensor sin);
  /// Then frequencies float64 [n rotary_dim / 2]; else empty sizes.
  [[nodiscard]] Sizes rope_frequency_sizes() const;
  void bind_rope_frequencies(Ops& ops, Tensor frequencies);

  /// One unit, or all of them in order (whole_stage, -1). x is the stage's input (empty on the first), y its output
  /// (empty on the last); between units the stash saves them. So unit-wise calls, from the first unit to the last, give
  /// the same result as one whole call.
  void forward(Context& context, int unit, Tensor x, Tensor y, Stash& stash) const;

  /// One unit, or all of them in reverse (whole_stage, -1). dy: gradient of the stage's output, dx: of its input.
  /// Between units the gradient alternates between the two tensors of `flow`, each like x; so unit-wise calls, from the
  /// last unit to the first, give what one whole call gives.
  struct Gradients {
    Tensor dy, dx;
    std::array<Tensor, 2> flow;
  };
  void backward(Context& context, int unit, const Gradients& gradients, Stash& stash);
  void backward_input(Context& context, int unit, const Gradients& gradients, Stash& stash) const;
  void backward_weight(Context& context, int unit, Stash& stash);

  /// Generation with a stage of all layers; see nn/decoder/decode.h.
  void decode(Context& context, const DecodeArgs& args) const;

 private:
  void bind_rope(Ops& ops, std::size_t i, RopeTables tables, std::span<const std::int32_t> positions);
  /// The part of `all` that is of the model's rope i.
  [[nodiscard]] Tensor of_rope(Tensor all, std::size_t i) const;

  LayerOptions options_;
  StageLayers layers_;
  std::unique_ptr<std::array<RopeTables, 4>> ropes_;  // of ModelSpec::ropes, shared by the decoder blocks
  // Shared by the embedding and the head of one rank, or this rank's copy of it.
  std::unique_ptr<Param> own_tied_weight_;
  Param* tied_weight_ = nullptr;
  std::vector<std::unique_ptr<Layer>> units_;
  Embedding* embedding_ = nullptr;  // these point to units
  std::vector<DecoderBlock*> blocks_;
  Head* head_ = nullptr;
};

}  // namespace echelon
