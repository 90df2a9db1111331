// The mesh of ranks: axes from the outermost to the innermost and the arithmetic between a rank and its coordinates. No communication here.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// From the outermost (slowest links) to the innermost (inside a node). cluster, cp and ep are named so that their place is visible; their degree is 1 so far.
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
  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }
  auto operator<=>(const AxisSet&) const = default;

 private:
  std::uint8_t bits_ = 0;
};

inline constexpr AxisSet data_axes = {Axis::dp_replicate, Axis::dp_shard};  // the axes along which ranks see different samples
inline constexpr AxisSet world_axes = {Axis::cluster, Axis::dp_replicate, Axis::pp, Axis::dp_shard, Axis::cp, Axis::tp};

/// A process group of every rank: the ranks that differ in `axes` only, or a part of them.
struct Group {
  enum class Part : std::uint8_t {
    all,
    ends,   // only the first and the last of them (tied embeddings over pp); the ranks between have no such group
    block,  // consecutive blocks of `block` ranks (ranks that share a key/value head under tp)
  };
  AxisSet axes;
  Part part = Part::all;
  int block = 0;
  auto operator<=>(const Group&) const = default;
};
[[nodiscard]] std::string name_of(const Group& group);  // "dp_shard+cp", "pp ends", "tp/2"

using Coordinates = std::array<int, num_axes>;  // indexed by Axis

class MeshShape {
 public:
  MeshShape();  // one rank
  /// `degrees` is indexed by Axis. Throws Error if one is below 1.
  explicit MeshShape(std::array<int, num_axes> degrees);

  [[nodiscard]] int degree(Axis axis) const { return degrees_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int num_ranks() const;
  [[nodiscard]] Coordinates coordinates_of(int rank) const;
  [[nodiscard]] int coordinate(int rank, Axis axis) const { return coordinates_of(rank)[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int rank_of(const Coordinates& coordinates) const;

  /// The ranks of the group that `rank` is in, ascending by mesh order; empty if it is in none (a middle rank of Part::ends).
  [[nodiscard]] std::vector<int> ranks_of(const Group& group, int rank) const;
  [[nodiscard]] int group_size(const Group& group, int rank) const;

  bool operator==(const MeshShape&) const = default;

 private:
  std::array<int, num_axes> degrees_;
};

}  // namespace echelon
