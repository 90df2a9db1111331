// What the type rules of several operations share. Each rule is in the file of its operation (ops/operations/), and
// docs/internals/types.md has all of them in a table. A rule goes from the layout types of what an operation reads to
// those of what it writes, axis by axis. What it does not allow is a fault of the layers, not of the user's config.
#pragma once

#include "types/inference.h"

namespace echelon {

inline constexpr int dim_of_rows = 0, dim_of_columns = 1;
inline constexpr int dim_of_sequences = 0, dim_of_heads = 2;  // of q, k, v [B, T, H, C]

/// One factor of a matmul, with the dims that it sums over (inner) and keeps (outer).
struct MatrixFactor {
  const Operand& x;
  int inner = 0, outer = 1;

  [[nodiscard]] bool is_sharded(TypeAxis axis, int dim) const;
};
/// The layout of c = a b: c's last dim is b's outer one, the dim before it a's. Ranks may hold parts of one of four
/// things, and of only one along the same axis:
///
///     M of a: parts of c
///     N of b: parts of c
///     K of both: addends of c
///     nothing, but a or b is an addend: so is c, since c is linear in each
[[nodiscard]] AxisLayout product(const Inference& call, TypeAxis axis, const MatrixFactor& a, const MatrixFactor& b,
                                 const Tensor& c);

/// The layout of a tensor with rows of `to` elements made row by row from one with rows of `from`.
[[nodiscard]] AxisLayout with_rows_of(AxisLayout layout, std::int64_t from, std::int64_t to);
/// That of a sum over the rows of x, along one axis: whole rows on different ranks leave addends.
[[nodiscard]] AxisLayout sum_of_rows(Inference& call, const Operand& x, TypeAxis axis);

/// The type of something that is added to a sum over all ranks: where several ranks have the same, the first of them
/// adds it.
[[nodiscard]] LayoutType as_addend(const Inference& call, const Operand& x, const Tensor& sum, LayoutType type);

/// Fails unless x [B, T, H, C] is whole, or ranks hold whole sequences or whole heads of it.
void require_whole_rows_of_heads(const Inference& call, const Operand& x, TypeAxis axis);
/// Fails unless ranks hold the tokens of the same rows. Tokens that all stages have go with rows of this stage's own.
void require_same_rows(const Inference& call, const Operand& tokens, const Operand& of_rows, TypeAxis axis);

}  // namespace echelon
