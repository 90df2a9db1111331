#include "ops/op_kind.h"

namespace echelon {

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::matmul: return "matmul";
    case OpKind::add_bias: return "add_bias";
    case OpKind::bias_backward: return "bias_backward";
    case OpKind::add: return "add";
    case OpKind::copy: return "copy";
    case OpKind::fill: return "fill";
    case OpKind::scale: return "scale";
    case OpKind::embedding: return "embedding";
    case OpKind::embedding_backward: return "embedding_backward";
    case OpKind::add_positions: return "add_positions";
    case OpKind::positions_backward: return "positions_backward";
    case OpKind::layer_norm: return "layer_norm";
    case OpKind::layer_norm_backward_input: return "layer_norm_backward_input";
    case OpKind::layer_norm_backward_weight: return "layer_norm_backward_weight";
    case OpKind::layer_norm_backward: return "layer_norm_backward";
    case OpKind::rms_norm: return "rms_norm";
    case OpKind::rms_norm_backward_input: return "rms_norm_backward_input";
    case OpKind::rms_norm_backward_weight: return "rms_norm_backward_weight";
    case OpKind::rms_norm_backward: return "rms_norm_backward";
    case OpKind::rope: return "rope";
    case OpKind::attention: return "attention";
    case OpKind::attention_backward: return "attention_backward";
    case OpKind::merge_attention: return "merge_attention";
    case OpKind::gelu: return "gelu";
    case OpKind::gelu_backward: return "gelu_backward";
    case OpKind::swiglu: return "swiglu";
    case OpKind::swiglu_backward: return "swiglu_backward";
    case OpKind::row_exp: return "row_exp";
    case OpKind::rescale_sums: return "rescale_sums";
    case OpKind::cross_entropy: return "cross_entropy";
    case OpKind::cross_entropy_backward: return "cross_entropy_backward";
    case OpKind::sum_of_squares: return "sum_of_squares";
    case OpKind::gradient_factor: return "gradient_factor";
    case OpKind::adamw: return "adamw";
    case OpKind::expert_slots: return "expert_slots";
    case OpKind::permute_to_experts: return "permute_to_experts";
    case OpKind::combine_experts: return "combine_experts";
    case OpKind::combine_experts_backward: return "combine_experts_backward";
    case OpKind::grouped_matmul: return "grouped_matmul";
    case OpKind::grouped_matmul_backward_weight: return "grouped_matmul_backward_weight";
    case OpKind::upload: return "upload";
    case OpKind::download: return "download";
  }
  return "?";
}

bool multiplies_matrices(OpKind kind) {
  return kind == OpKind::matmul || kind == OpKind::attention || kind == OpKind::attention_backward ||
         kind == OpKind::grouped_matmul || kind == OpKind::grouped_matmul_backward_weight;
}

}  // namespace echelon
