// The axes of the mesh, sets of them, and the order in which they vary over the ranks.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// cluster and ep reserve their place in the order; their degree is always 1 so far.
enum class Axis : std::uint8_t { cluster, dp_replicate, pp, dp_shard, cp, tp };
inline constexpr int num_axes = 6;
[[nodiscard]] std::string_view name_of(Axis axis);

/// A set of axes, e.g. AxisSet{Axis::dp_replicate, Axis::dp_shard}.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ = static_cast<std::uint8_t>(bits_ | (1U << static_cast<unsigned>(axis)));
  }
  [[nodiscard]] static constexpr AxisSet all() {
    AxisSet set;
    set.bits_ = static_cast<std::uint8_t>((1U << num_axes) - 1);
    return set;
  }
  [[nodiscard]] constexpr AxisSet without(Axis axis) const {
    AxisSet set;
    set.bits_ = static_cast<std::uint8_t>(bits_ & ~(1U << static_cast<unsigned>(axis)));
    return set;
  }
  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }
  [[nodiscard]] constexpr AxisSet operator|(AxisSet other) const {
    other.bits_ = static_cast<std::uint8_t>(other.bits_ | bits_);
    return other;
  }
  auto operator<=>(const AxisSet&) const = default;

 private:
  std::uint8_t bits_ = 0;
};

/// Ranks along sample_axes see different samples; ranks along token_axes see different tokens of the same samples.
/// Gradients and the number of targets are summed over both.
inline constexpr AxisSet sample_axes = {Axis::dp_replicate, Axis::dp_shard};
inline constexpr AxisSet token_axes = {Axis::cp};
inline constexpr AxisSet data_axes = sample_axes | token_axes;

/// The ranks that train one copy of the model and take every step together: one cluster.
inline constexpr AxisSet step_axes = AxisSet::all().without(Axis::cluster);
/// Every rank of the run.
inline constexpr AxisSet world_axes = AxisSet::all();

/// Axes from the innermost, in which neighbouring ranks differ, to the outermost. An axis that is not named has one
/// rank.
class AxisOrder {
 public:
  /// The default puts axes with the most communication innermost, on fast links: tp-cp-dp_shard-pp-dp_replicate.
  AxisOrder() = default;
  /// Each at most once.
  explicit AxisOrder(std::span<const Axis> innermost_first);

  [[nodiscard]] std::span<const Axis> axes() const& { return {axes_.data(), num_named_}; }
  std::span<const Axis> axes() const&& = delete;  // it refers to the order
  [[nodiscard]] bool names(Axis axis) const;
  auto operator<=>(const AxisOrder&) const = default;

 private:
  std::array<Axis, num_axes> axes_ = {Axis::tp, Axis::cp, Axis::dp_shard, Axis::pp, Axis::dp_replicate};
  std::size_t num_named_ = 5;
};

/// In the syntax of Megatron-LM's --order: "tp-cp-dp-pp". dp means dp_shard with dp_replicate outside it.
[[nodiscard]] std::string name_of(const AxisOrder& order);

/// Names of axes, or several of them joined by dashes, innermost first, in any letter case; ep has no ranks of its own
/// and may be anywhere. Throws Error naming `key` and the closest valid order.
[[nodiscard]] AxisOrder parse_axis_order(std::string_view key, const std::vector<std::string>& names);

}  // namespace echelon
