// A rank's place in the mesh and its communicators: comm(group) for the groups that its run asked for when the mesh was
// made.
#pragma once

#include "comm/comm.h"
#include "spec/mesh_shape.h"

#include <map>
#include <memory>
#include <vector>

namespace echelon {

class Carrier;

class Mesh {
 public:
  Mesh(MeshShape shape, int rank) : shape_(shape), rank_(rank) {}
  virtual ~Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  [[nodiscard]] const MeshShape& shape() const { return shape_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int coordinate(Axis axis) const { return shape_.coordinate(rank_, axis); }

  /// This rank's communicator of the group. Made on first use; every rank of a group must use it. Throws Error if this
  /// rank is in no such group.
  [[nodiscard]] virtual Comm& comm(const Group& group) = 0;

  /// Connects the ranks of these groups, where a transport connects and had better not do so on first use: there, ranks
  /// would wait for each other in whatever order their first operations have. All ranks call it with the same list;
  /// groups that a rank is not in are left out.
  virtual void connect(const std::vector<Group>& /*groups*/) {}

  /// Advances what is under way on any communicator of this rank, without blocking.
  virtual void poll() = 0;

  /// Bytes that this rank has sent so far, per group, counted where the transport copies (in a trace: by the same
  /// closed forms). Direct algorithms: a rank sends its part of the sum's shards to their owners, and its own shard to
  /// everybody: 2 (n - 1) / n of an all-reduced buffer.
  [[nodiscard]] virtual std::map<Group, std::int64_t> sent_bytes() const = 0;

  /// Makes every wait of every rank throw Failure with this sentence. Called by a rank that is about to unwind.
  virtual void abort(const std::string& reason) = 0;

  /// This rank of the same mesh for tensors of a device, which `carrier` moves and which may then be in no tensor of
  /// this mesh; both meshes fail together. This one and the carrier must outlive it. Null where ranks share no memory.
  [[nodiscard]] virtual std::unique_ptr<Mesh> carried_by(Carrier& /*carrier*/) { return nullptr; }

  /// Ranks that take turns on the cores of one process are bound, each turn to a core of its own. Called by every rank;
  /// without turns nothing happens.
  virtual void bind_turns() {}

 private:
  MeshShape shape_;
  int rank_;
};

}  // namespace echelon
