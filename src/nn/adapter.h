// A low-rank addition to the weight of a linear layer (Hu et al. 2021, LoRA, arXiv:2106.09685):
//
//     u = s x A^T        y += u B^T              A [r, in], B [out, r]
//     du = s dy B        dx += du A        dB += dy^T u,  dA += du^T x
//
// s is alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, rsLoRA, arXiv:2312.03732). u is computed again in a backward
// pass: that takes 2 N in r flops, where a saved u would take memory. A starts uniform in +-1 / sqrt(in), as in PEFT,
// and B as zero, so that the first step starts with the model that was loaded.
//
// Of the two, the one that tensor parallelism does not shard sees a part of the inputs or outputs on each rank, so its
// gradient is summed over tp. No other communication is added: in a column-parallel layer dx is a partial sum anyhow,
// and in a row-parallel one y is. Those of a layer that is whole on every rank are whole, too.
#pragma once

#include "nn/context.h"
#include "nn/param.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace echelon {

class Adapter {
 public:
  struct Matrices {
    std::shared_ptr<Param> a;  // of a module, which several layers share where it is fused
    Param b;
    bool owns_a = true;  // of these layers the first one
  };
  Adapter(const LayerOptions& options, Matrices matrices)
      : matrices_(std::move(matrices)), scale_(options.lora.scale()) {}

  [[nodiscard]] std::vector<Param*> params();

  /// y += u B^T.
  void add_product(Context& context, Tensor x, Tensor y) const;
  /// dx += du A.
  void add_input_gradient(Context& context, Tensor dy, Tensor dx) const;
  /// Adds to the gradients of A and B.
  void weight_backward(Context& context, Tensor dy, Tensor x);

 private:
  [[nodiscard]] Tensor hidden(Context& context, Tensor x) const;
  [[nodiscard]] Tensor hidden_gradient(Context& context, Tensor dy) const;

  Matrices matrices_;
  double scale_;
};

class Linear;

/// What tensor parallelism shards of a linear layer. One that is whole has the same adapter on every rank.
enum class ShardedSide : std::uint8_t { none, inputs, outputs };

/// Gives linear layers of one input their adapters, where the config has some for them.
void add_adapters(const LayerOptions& options, std::span<Linear* const> layers, ShardedSide side);
void add_adapters(const LayerOptions& options, std::span<Linear> layers, ShardedSide side);

}  // namespace echelon
