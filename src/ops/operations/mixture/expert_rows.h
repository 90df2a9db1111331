// The rows of experts, for the operations that share them: checks, type rules and samples of `offsets` and `slots`.
#pragma once

#include "ops/checker.h"
#include "ops/operations/mixture/experts.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {

inline void check_offsets(const ArgumentChecker& must, const Tensor& offsets) {
  must.dtype("offsets", offsets, DType::int32);
  must.dims("offsets", offsets, 1);
  must.that(offsets.size(0) >= 2 && offsets.size(0) <= most_experts + 1, "offsets", offsets,
            "be of one expert or more, and of 8192 at most");
}
/// slots [N, k], and rows of experts [R, D], R <= N k.
inline void check_rows_of_slots(const ArgumentChecker& must, const Tensor& slots, const Tensor& of_experts) {
  must.dims("slots", slots, 2);
  must.dtype("slots", slots, DType::int32);
  must.dims("the experts' rows", of_experts, 2);
  must.computes("the experts' rows", of_experts);
  must.that(of_experts.size(0) <= slots.num_elements(), "the experts' rows", of_experts,
            "have a row for each slot at most");
}

/// Rows at their experts, of which a rank has so many columns.
[[nodiscard]] inline bool has_features(AxisLayout rows, std::int64_t num_columns) {
  return rows.placement == TensorPlacement::dispatched && rows.block == num_columns;
}

/// Every rank orders the rows of its own tokens: where tokens are sharded over ranks, slots are sharded with them, and
/// offsets are each rank's own. The rows of experts are sharded like their tokens, or dispatched with their slots to
/// the ranks of their experts.
inline void require_same_tokens(const Inference& call, const Operand& of_tokens, const Operand& rows, TypeAxis axis) {
  const bool tokens_are_cut = of_tokens[axis].placement == TensorPlacement::sharded,
             rows_are_cut = rows.is_sharded_along(axis, 0);
  call.require_complete(of_tokens, axis);
  const auto is_at_experts = [&](const Operand& x) {
    return x[axis].placement == TensorPlacement::dispatched || x[axis].placement == TensorPlacement::dispatched_addends;
  };
  const auto is_on_the_way = [&](const Operand& x) {
    return x[axis].placement == TensorPlacement::at_node || x[axis].placement == TensorPlacement::addends_at_node;
  };
  if (is_at_experts(of_tokens) != is_at_experts(rows) || is_on_the_way(of_tokens) != is_on_the_way(rows))
    call.fail_together(of_tokens, rows, axis);
  if (of_tokens[axis].block != outermost && is_at_experts(of_tokens)) call.fail_together(of_tokens, rows, axis);
  if (rows[axis] != partial_layout && tokens_are_cut != rows_are_cut) call.fail_together(of_tokens, rows, axis);
}
/// Of the products of the rows of x and dy, one for each row: a part of the columns of both gives an addend.
[[nodiscard]] inline AxisLayout products_of_rows(const Inference& call, const Operand& dy, const Operand& x,
                                                 TypeAxis axis) {
  const bool columns_are_cut = dy.is_sharded_along(axis, 1) && x.is_sharded_along(axis, 1);
  const bool is_linear = (dy[axis] == partial_layout && x[axis] == replicated_layout) ||
                         (x[axis] == partial_layout && dy[axis] == replicated_layout);
  if (columns_are_cut || is_linear) return partial_layout;
  const bool are_features = has_features(dy[axis], dy.tensor.size(1)) && has_features(x[axis], x.tensor.size(1));
  if (are_features) return dispatched_addends_layout;
  return with_rows_of(call.shared(dy, x, axis), x.tensor.size(1), 1);
}

inline constexpr std::int64_t num_sample_experts = 8;
/// The same number of rows for each expert.
[[nodiscard]] inline Tensor sample_offsets(SampleOperands& s, std::int64_t num_rows) {
  return s.integers({num_sample_experts + 1}, [=](std::int64_t e) { return num_rows * e / num_sample_experts; });
}
[[nodiscard]] inline Tensor sample_slots(SampleOperands& s, std::int64_t N, std::int64_t k) {
  return s.integers({N, k}, [](std::int64_t i) { return i; });
}

}  // namespace echelon
