// The layout type of a tensor: for each axis of the mesh, how the ranks along it hold the tensor. A statement about all
// ranks of an axis at once, since all of them run the same program: what one rank calls its tensor is the same bits on
// the others, their parts of one tensor, or their addends of it.
#pragma once

#include "tensor/tensor.h"

#include <array>
#include <cstdint>
#include <string>

namespace echelon {

/// The axes of the mesh as types see them. Where several tensor-parallel ranks hold the same kv head, tp counts as two
/// axes: the heads, and the ranks of a head.
enum class TypeAxis : std::uint8_t { dp_replicate, pp, dp_shard, cp, tp, kv_replica };
inline constexpr std::size_t num_type_axes = 6;

/// How the n ranks along an axis hold a tensor.
enum class Held : std::uint8_t {
  replicated,  // the same bits
  sharded,     // parts along a dim
  partial,     // addends
  local_sum,   // addends, each in the scale of its own rank's maximum (row_exp): to be rescaled before they are summed
  local_max,   // maxima of the ranks' parts
  own,         // each its own, with nothing in common: what the stages of a pipeline hold
  zero,        // zeros, which are replicated and addends alike
};

/// Of AxisLayout::block: the cut goes through the outermost dim.
inline constexpr std::int64_t outermost = 0;

struct AxisLayout {
  Held held = Held::replicated;
  /// Of a sharded tensor: so many of a rank's elements lie together in the whole one, which is the product of the sizes
  /// from the cut dim on. It stays what it is when the tensor is reshaped or cut into rows, as a dim's number does not.
  std::int64_t block = outermost;
  bool operator==(const AxisLayout&) const = default;
};

/// Indexed by TypeAxis. What stands at an axis of one rank means nothing.
struct LayoutType {
  std::array<AxisLayout, num_type_axes> axes{};

  [[nodiscard]] AxisLayout operator[](TypeAxis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] AxisLayout& operator[](TypeAxis axis) { return axes[static_cast<std::size_t>(axis)]; }
  bool operator==(const LayoutType&) const = default;
};

inline constexpr AxisLayout replicated_layout = {Held::replicated};
inline constexpr AxisLayout partial_layout = {Held::partial};
inline constexpr AxisLayout own_layout = {Held::own};
inline constexpr AxisLayout sharded_rows = {Held::sharded, outermost};
/// `held` along every axis.
[[nodiscard]] LayoutType everywhere(Held held);

/// The product of the sizes from `dim` on: the block of a tensor that is cut along it.
[[nodiscard]] std::int64_t block_from(const Sizes& sizes, int dim);
/// Cut along `dim`, which is not the outermost one, into parts like x.
[[nodiscard]] inline AxisLayout sharded_along(const Tensor& x, int dim) {
  return {Held::sharded, block_from(x.sizes, dim)};
}

/// True if the ranks hold parts of x along `dim`.
[[nodiscard]] bool is_cut_along(AxisLayout layout, const Tensor& x, int dim);
/// True if each row of x (its last dim) lies whole on one rank: the cut is along the outermost dim, or between rows.
[[nodiscard]] bool is_cut_between_rows(AxisLayout layout, const Tensor& x);

/// "replicated", "sharded(1)", "partial", ...: the dim is that of x.
[[nodiscard]] std::string describe(AxisLayout layout, const Tensor& x);

}  // namespace echelon
