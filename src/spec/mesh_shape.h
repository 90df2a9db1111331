// The mesh of ranks: its axes' degrees and order, and the arithmetic between a rank and its coordinates. No
// communication here.
#pragma once

#include "spec/axis.h"

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace echelon {

/// A process group of every rank: the ranks that differ in `axes` only, or a part of them.
struct Group {
  enum class Part : std::uint8_t {
    all,
    ends,     // only the first and the last of them (tied embeddings over pp); the ranks between have no such group
    block,    // consecutive blocks of `block` ranks (ranks that share a key/value head under tp)
    strided,  // every `block`-th rank: those at one place of such blocks (ranks that hold the same experts)
  };
  AxisSet axes;
  Part part = Part::all;
  int block = 0;
  int within = 0;  // strided: every `block`-th rank of consecutive `within` ones; 0: of all
  auto operator<=>(const Group&) const = default;
};
/// Examples: "dp_shard+cp", "pp ends", "tp/2", "dp_shard%2", "dp_shard/8%2".
[[nodiscard]] std::string name_of(const Group& group);

/// A rank's position among the ranks of a group, from 0; size 0 if it is in none.
struct GroupPlace {
  int index = 0, size = 0;
  bool operator==(const GroupPlace&) const = default;
};

using Coordinates = std::array<int, num_axes>;  // indexed by Axis

/// The number of ranks along each axis, 1 along those that are not named: {{Axis::pp, 2}, {Axis::tp, 4}}.
class AxisDegrees {
 public:
  AxisDegrees(std::initializer_list<std::pair<Axis, int>> named = {}) {
    degrees_.fill(1);
    for (const auto& [axis, degree] : named) (*this)[axis] = degree;
  }
  [[nodiscard]] int& operator[](Axis axis) { return degrees_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] const std::array<int, num_axes>& by_axis() const { return degrees_; }

 private:
  std::array<int, num_axes> degrees_;
};

class MeshShape {
 public:
  /// Of one rank without degrees. Axes that `order` does not name are outside those that it names. Throws Error if a
  /// degree is below 1.
  explicit MeshShape(const AxisDegrees& degrees = {}, const AxisOrder& order = {});

  [[nodiscard]] int degree(Axis axis) const { return degrees_[static_cast<std::size_t>(axis)]; }
  /// The difference of the ids of ranks that are neighbours on the axis; 0 on an axis of one rank.
  [[nodiscard]] int stride(Axis axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int num_ranks() const;
  [[nodiscard]] Coordinates coordinates_of(int rank) const;
  [[nodiscard]] int coordinate(int rank, Axis axis) const {
    return coordinates_of(rank)[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] int rank_of(const Coordinates& coordinates) const;

  /// The ranks of the group that `rank` is in; empty if it is in none (a middle rank of Part::ends). They ascend by
  /// their coordinates in the order of Axis, whatever the mesh's order. The mesh's order decides where a rank runs,
  /// never its position in a group. It therefore changes no sum and no bit.
  [[nodiscard]] std::vector<int> ranks_of(const Group& group, int rank) const;
  [[nodiscard]] GroupPlace place_in(const Group& group, int rank) const;
  [[nodiscard]] int group_size(const Group& group, int rank) const { return place_in(group, rank).size; }

  bool operator==(const MeshShape&) const = default;

 private:
  /// The group of all ranks that differ in the axes only.
  [[nodiscard]] GroupPlace along(AxisSet axes, int rank) const;

  std::array<int, num_axes> degrees_;
  std::array<int, num_axes> strides_ = {};
};

}  // namespace echelon
