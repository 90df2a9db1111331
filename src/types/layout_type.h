// The layout type of a tensor: for each axis of the mesh, how the ranks along it hold the tensor (placements, as in
// PyTorch's DTensor). It covers all ranks of an axis, since all run the same program. Their tensors are the same bits,
// the parts of one tensor, or addends of it.
#pragma once

#include "tensor/tensor.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace echelon {

/// The axes of the mesh as types see them. Where several tensor-parallel ranks hold the same kv head, tp counts as two
/// axes: the heads, and the ranks of a head. Where context-parallel ranks exchange heads, cp counts as two: the ring of
/// their groups, and the ranks of a group.
enum class TypeAxis : std::uint8_t { dp_replicate, pp, dp_shard, cp, cp_heads, tp, kv_replica };
inline constexpr std::size_t num_type_axes = 7;
[[nodiscard]] constexpr bool is_of_context(TypeAxis axis) { return axis == TypeAxis::cp || axis == TypeAxis::cp_heads; }

/// How the n ranks along an axis hold a tensor.
enum class TensorPlacement : std::uint8_t {
  replicated,  // the same bits
  sharded,     // parts along a dim
  partial,     // addends
  local_sum,   // addends, each in the scale of its own rank's maximum (row_exp): to be rescaled before they are summed
  local_max,   // maxima of the ranks' parts
  own,         // each its own, with nothing in common: what the stages of a pipeline hold
  zero,        // zeros, which are both replicated and addends
  // Rows of context parallelism that some of the ring's blocks are in: of attention's result, merged or to be merged,
  // and of gradients that are sums over the blocks.
  attended,
  addends_of_parts,  // parts along a dim, of each of which `copies` ranks hold an addend
  // With experts over ranks, along each axis that their groups go over (RankAxes::divides_experts), whatever part of it
  // they take. Rows that have come to the rank of their expert, or to its node; rows that have gone there and not come
  // back; the experts of each rank; and addends of these.
  dispatched,
  at_node,
  departed,
  experts,
  expert_addends,
  // With features of the same experts on several ranks, what these compute of a row that has come to all of them; or
  // what all ranks do of a token that has.
  // Then the same where they have given it back to the one of them to which it came, one after the other.
  dispatched_addends,
  addends_at_node,
};

/// By which lists of positions the rows of a context-parallel tensor are ordered where it has those of several ranks.
enum class RowOrder : std::uint8_t {
  ascending,  // of all of them together, as a single rank's rows are
  by_rank,    // those of one rank's list after the other's: as they were gathered, or are to be given back
};

/// A value of AxisLayout::block: sharded along the outermost dim.
inline constexpr std::int64_t outermost = 0;

///
/// Blocks of a ring over n ranks: rank r has the queries of its own tokens, and for a time the keys of rank r - d. Such
/// a pair of blocks has distance d, whichever of the two is at rank r.
struct AxisLayout {
  TensorPlacement placement = TensorPlacement::replicated;
  /// Of a sharded tensor, and of dispatched rows and experts where features of these are sharded too: how many of a
  /// rank's elements are adjacent in the whole tensor, the product of the sizes from the sharded dim on. Unlike the
  /// index of a dim, it does not change when the tensor is reshaped or split into rows.
  std::int64_t block = outermost;
  /// Whose rows they are: those of the rank this many places before.
  int distance = 0;
  /// Of attended rows: the distances of the pairs that they have, first, ..., first + count - 1 (mod n).
  int first = 0, count = 0;
  /// Of parts along a dim: how many ranks in a row have the same part.
  int copies = 1;
  /// Along the axis over which rows are gathered. Of the index of gather_rows: of the rows that it takes.
  RowOrder order = RowOrder::ascending;
  bool operator==(const AxisLayout&) const = default;
};

/// Indexed by TypeAxis. The entry of an axis with one rank has no meaning.
struct LayoutType {
  std::array<AxisLayout, num_type_axes> axes{};

  [[nodiscard]] AxisLayout operator[](TypeAxis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] AxisLayout& operator[](TypeAxis axis) { return axes[static_cast<std::size_t>(axis)]; }
  bool operator==(const LayoutType&) const = default;
};

inline constexpr AxisLayout replicated_layout = {TensorPlacement::replicated};
inline constexpr AxisLayout partial_layout = {TensorPlacement::partial};
inline constexpr AxisLayout own_layout = {TensorPlacement::own};
inline constexpr AxisLayout dispatched_layout = {TensorPlacement::dispatched};
inline constexpr AxisLayout at_node_layout = {TensorPlacement::at_node};
inline constexpr AxisLayout departed_layout = {TensorPlacement::departed};
inline constexpr AxisLayout experts_layout = {TensorPlacement::experts};
inline constexpr AxisLayout dispatched_addends_layout = {TensorPlacement::dispatched_addends};
inline constexpr AxisLayout addends_at_node_layout = {TensorPlacement::addends_at_node};
inline constexpr AxisLayout sharded_rows = {TensorPlacement::sharded, outermost};
/// `placement` along every axis.
[[nodiscard]] LayoutType everywhere(TensorPlacement placement);

/// The product of the sizes from `dim` on: the block of a tensor that is sharded along it.
[[nodiscard]] std::int64_t block_from(const Sizes& sizes, int dim);
/// Sharded along `dim`, which is not the outermost one, into parts like x.
[[nodiscard]] inline AxisLayout sharded_along(const Tensor& x, int dim) {
  return {TensorPlacement::sharded, block_from(x.sizes, dim)};
}

/// Both together, of n ranks: what attended rows have of the ring's blocks. None if they are not of the same rows, or
/// have a pair twice or pairs that do not follow each other. Of all n pairs: sharded_rows, at home.
[[nodiscard]] std::optional<AxisLayout> united(AxisLayout a, AxisLayout b, int n);

/// What ranks that have the same parts compute of the gradient of each.
[[nodiscard]] constexpr AxisLayout as_addends(AxisLayout parts) {
  parts.placement = TensorPlacement::addends_of_parts;
  return parts;
}

/// True if the ranks hold parts of x along `dim`.
[[nodiscard]] bool is_sharded_along(AxisLayout layout, const Tensor& x, int dim);
/// True if each row of x (its last dim) is whole on one rank: x is sharded along the outermost dim, or between rows.
[[nodiscard]] bool is_sharded_between_rows(AxisLayout layout, const Tensor& x);

/// "replicated", "sharded(1)", "partial", ...: the dim is that of x.
[[nodiscard]] std::string describe(AxisLayout layout, const Tensor& x);

}  // namespace echelon
