// A rank's place along the axes of types, and which of them a process group spans.
#pragma once

#include "spec/mesh_shape.h"
#include "types/layout_type.h"

#include <string>
#include <vector>

namespace echelon {

/// How ranks have experts together.
struct ExpertRanks {
  int num_ranks = 1;  // that have all of a layer; 1: every rank has all of them, or features of all
  // Those on one node, or with features of the same experts: rows go over them in a second hop. With 0, rows
  // go to experts directly; with 1 all tokens go to every rank, which returns sums.
  int inside = 0;
  bool divide_features = false;  // the latter
  [[nodiscard]] bool gather_tokens() const { return inside == 1; }
};

class RankAxes {
 public:
  /// `kv_replicas` tensor-parallel ranks in a row hold the same kv head; 1: heads are sharded over all of them.
  /// `head_ranks` context-parallel ranks in a row exchange heads.
  RankAxes(const MeshShape& shape, int rank, int kv_replicas, int head_ranks = 1, const ExpertRanks& experts = {});

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int degree(TypeAxis axis) const { return places_[static_cast<std::size_t>(axis)].degree; }
  [[nodiscard]] int index(TypeAxis axis) const { return places_[static_cast<std::size_t>(axis)].index; }
  [[nodiscard]] bool spans(TypeAxis axis) const { return degree(axis) > 1; }
  /// The axes with more than one rank; types cover only these.
  [[nodiscard]] const std::vector<TypeAxis>& all() const { return all_; }
  /// Those of `group`. Throws Failure for a group that is not made of whole axes.
  [[nodiscard]] std::vector<TypeAxis> of(const Group& group) const;

  /// Over which context-parallel ranks gather rows: those that exchange heads, or all.
  [[nodiscard]] TypeAxis gathered_rows_axis() const {
    return spans(TypeAxis::cp_heads) ? TypeAxis::cp_heads : TypeAxis::cp;
  }

  /// Whether ranks along the axis have different experts, or tokens for them.
  [[nodiscard]] bool divides_experts(TypeAxis axis) const;
  /// The ranks with the same experts as this one, and its place among them.
  [[nodiscard]] GroupPlace expert_holders() const;
  [[nodiscard]] const ExpertRanks& experts() const { return experts_; }
  /// What ranks of a group exchange: rows of tokens for rows at their experts, or, in two hops, at a rank on the node
  /// of these, or at one of those with features of these.
  enum class RowHop : std::uint8_t { none, direct, across, inside };
  [[nodiscard]] RowHop row_hop(const Group& group) const;

  /// "tp", "dp_shard", ...; "tp/4" for the four ranks that hold a kv head, "cp/2" for two that exchange heads.
  [[nodiscard]] std::string name(TypeAxis axis) const;
  /// "dp_replicate+dp_shard"
  [[nodiscard]] std::string names(const std::vector<TypeAxis>& axes) const;

 private:
  struct Place {
    int degree = 1, index = 0;
  };
  MeshShape shape_;
  int rank_;
  ExpertRanks experts_;
  std::array<Place, num_type_axes> places_;
  std::vector<TypeAxis> all_;
};

/// Ranks that together show all types: the first rank of every axis, and for each axis the next rank along it.
[[nodiscard]] std::vector<int> representative_ranks(const MeshShape& shape, int kv_replicas, int head_ranks = 1,
                                                    int expert_ranks = 1);

}  // namespace echelon
