// A rank's mesh without peers, whose collectives compute types: which layouts a collective accepts over which axes, and
// the layout of its result.
//
//     all_reduce        sum: partial -> replicated       max: maxima of parts -> replicated
//     reduce_scatter    partial -> sharded(0)            all_gather     sharded(0) -> replicated
//     all_to_all        sharded(0) <-> sharded along the columns of its parts
//     all_to_all_rows   over ranks with the experts of a layer: sharded(0) <-> dispatched; what was sent is departed
//                       in two hops, across: sharded(0) <-> at_node; inside of nodes: at_node <-> dispatched; to ranks
//                       with features: at_node -> dispatched, dispatched_addends -> addends_at_node
//                       (what routers chose is gathered as it is)
//     where all tokens go to every rank: all_gather sharded(0) -> at_node, reduce_scatter dispatched_addends ->
//                       sharded(0)
//     send, receive     what crosses from stage to stage has one type, known beforehand
#pragma once

#include "comm/mesh.h"
#include "types/rank_axes.h"
#include "types/typed_memory.h"

#include <memory>

namespace echelon {

class TypedMesh final : public Mesh {
 public:
  /// `memory` and `axes` must outlive it. The third argument is the type of activations between stages and of their
  /// gradients.
  TypedMesh(const MeshShape& shape, TypedMemory& memory, const RankAxes& axes, const LayoutType& border);
  ~TypedMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override {}
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return {}; }
  void abort(const std::string&) override {}

 private:
  class TypedComm;

  TypedMemory& memory_;
  const RankAxes& axes_;
  LayoutType border_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

}  // namespace echelon
