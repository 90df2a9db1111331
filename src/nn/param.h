// One trained tensor as this rank sees it: its global name and sizes, the slice that lies here, and how its gradient
// comes together.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <string>

namespace echelon {

/// Gradients that each tensor-parallel rank has only a part of: summed over these ranks before the reduction over the
/// data axes.
enum class ReplicaSum : std::uint8_t {
  none,
  tp,  // norms under sequence parallelism, q/k norms (each rank sees its heads), biases behind a row-parallel product
       // under sequence parallelism
  kv_replicas,  // key and value projections where several ranks hold the same kv head
};

struct Param {
  std::string
      name;  // global, e.g. "model.layers.3.self_attn.q_proj.weight", in Hugging Face's Llama naming for every family
  Sizes global_sizes;  // of the whole tensor, unpadded
  int split_dim = -1;  // the dim that tensor parallelism cuts; -1: whole on every rank
  std::int64_t split_first =
      0;  // this rank's slice of split_dim; what reaches past the global size is padding: zeros that stay zeros
  std::int64_t split_count = 0;
  ReplicaSum replica_sum = ReplicaSum::none;
  bool is_first_copy = true;  // of those that tensor-parallel ranks hold of this slice: the one that counts in the norm
                              // and is written to checkpoints
  bool decays = true;         // weight decay applies: not to norms and biases
  double init_std = 0.0;      // normal(0, init_std); 0: init_value everywhere
  double init_value = 0.0;
  bool is_formed_by_product =
      false;  // the first product of a step writes all of the gradient, so nobody zeroes it before

  Tensor value;  // bound by whoever owns the memory
  Tensor grad;
  bool has_grad = true;  // false from the beginning of a step to that first product

  [[nodiscard]] Sizes local_sizes() const {
    Sizes sizes = global_sizes;
    if (split_dim >= 0) sizes[split_dim] = split_count;
    return sizes;
  }
};

}  // namespace echelon
