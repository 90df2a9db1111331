// One trained tensor as this rank sees it: its global name, the slice that is stored here, and over which ranks its
// gradient is summed.
#pragma once

#include "spec/groups.h"
#include "tensor/tensor.h"
#include "tensor/tensor_slice.h"

#include <cstdint>
#include <optional>
#include <string>

namespace echelon {

struct Param {
  // global, e.g. "model.layers.3.self_attn.q_proj.weight", in Hugging Face's Llama naming for every family.
  std::string name;
  // What this rank has of the tensor: all of it, or the entries of one dim that tensor parallelism gives it. Padding is
  // zeros that stay zeros.
  TensorSlice slice = {};
  // groups.partial is the tensor-parallel ranks for norms and for biases after a row-parallel matmul under sequence
  // parallelism, and for q/k norms (each rank sees its heads); for key and value projections those with the same kv
  // head.
  GradientGroups groups = {};
  // The tensor-parallel ranks that hold this slice; none: this rank alone.
  std::optional<Group> copies = {};
  // Of these copies the one that counts in the norm and is written to models.
  bool is_first_copy = true;
  bool decays = true;     // weight decay applies: not to norms and biases
  bool trains = true;     // false: it has neither a gradient nor optimizer states
  bool is_saved = true;   // in checkpoints, also if it is frozen: all but the base of adapters
  double init_std = 0.0;  // normal(0, init_std); 0: init_value everywhere
  double init_value = 0.0;
  double init_bound = 0.0;  // uniform in [-init_bound, init_bound) instead; 0: as above
  // The first matmul of a step overwrites the whole gradient, so it is not zeroed before.
  bool is_overwritten_by_first_matmul = false;

  Tensor value;  // bound by the owner of the memory
  Tensor grad;
  bool has_grad = true;  // false from the start of a step to that first matmul
  // Of a weight that matmuls round to 8 bits: float32 [1], where forward passes leave its largest magnitude, which
  // backward passes read.
  bool is_rounded = false;
  Tensor amax = {};

  [[nodiscard]] const Sizes& global_sizes() const { return slice.global_sizes(); }
  [[nodiscard]] const Sizes& local_sizes() const { return slice.sizes(); }
};

/// A hash of the parameter's name, the same on every machine.
[[nodiscard]] std::uint64_t stream_of(const Param& param);

}  // namespace echelon
