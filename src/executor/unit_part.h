// The kinds of units that stages are made of, and one of them alone as a part of the model.
#pragma once

#include "executor/model_part.h"

#include <compare>

namespace echelon {

/// What tells the units of a rank apart, in what they compute, send and save.
struct UnitKind {
  enum class Role : std::uint8_t { embedding, block, head, tied_weight };
  Role role = Role::block;
  BlockOperations recompute = {};  // of a block
  LayerKind layer = {};            // of a block
  // Of a model that ties embedding and head: the unit that the tied weight is in, or is used by. Where the head is on
  // another rank, it has a copy of it.
  bool has_copy = false;
  bool is_head_copy = false;
  bool is_overwritten_by_first_matmul = false;
  auto operator<=>(const UnitKind&) const = default;
};

/// A part of one stage, which has one unit of that kind. A tied weight comes with the unit that uses it.
[[nodiscard]] ModelPart make_unit_part(const RunConfig& config, int rank, const UnitKind& kind);
/// The unit that such a part was made for.
[[nodiscard]] ShardedUnit& unit_of(ModelPart& part, const UnitKind& kind);

/// What matters of a kind to its parameters, gradients and optimizer state.
[[nodiscard]] UnitKind kind_of_state(UnitKind kind);

}  // namespace echelon
