// The names of the operations of ops/ops.h, for records and reports.
#pragma once

#include <cstdint>
#include <string_view>

namespace echelon {

enum class OpKind : std::uint8_t {
  matmul,
  add_bias,
  bias_backward,
  add,
  copy,
  fill,
  scale,
  embedding,
  embedding_backward,
  add_positions,
  positions_backward,
  layer_norm,
  layer_norm_backward_input,
  layer_norm_backward_weight,
  layer_norm_backward,
  rms_norm,
  rms_norm_backward_input,
  rms_norm_backward_weight,
  rms_norm_backward,
  rope,
  attention,
  attention_backward,
  merge_attention,
  gelu,
  gelu_backward,
  swiglu,
  swiglu_backward,
  row_exp,
  rescale_sums,
  cross_entropy,
  cross_entropy_backward,
  sum_of_squares,
  gradient_factor,
  adamw,
  expert_slots,
  permute_to_experts,
  combine_experts,
  combine_experts_backward,
  grouped_matmul,
  grouped_matmul_backward_weight,
  upload,
  download,
};

/// "matmul", "layer_norm_backward_input", ...
[[nodiscard]] std::string_view name_of(OpKind kind);

/// What an operation's time goes with: its flops if it multiplies matrices, else its bytes.
[[nodiscard]] bool multiplies_matrices(OpKind kind);

}  // namespace echelon
