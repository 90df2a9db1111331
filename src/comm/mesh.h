// A rank's place in the mesh and its communicators: comm(group) for the groups that its run asked for when the mesh was
// made.
#pragma once

#include "comm/comm.h"
#include "spec/mesh_shape.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

class DeviceTransport;

/// Of a layer that communicates.
struct LayerPart {
  enum class Kind : std::uint8_t { whole, ring_hop, kv_head, to_heads, to_tokens };
  Kind kind = Kind::whole;
  std::int64_t index = 0;  // of the hop or head
};

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

  /// Connects the ranks of these groups, for transports that must not connect on first use: ranks would wait for each
  /// other in the order of their first operations. All ranks call it with the same list; a rank ignores groups that it
  /// is not in.
  virtual void connect(const std::vector<Group>& /*groups*/) {}

  /// Operations that `start` starts may be launched together when it returns; none is waited for within it.
  virtual void together(const std::function<void()>& start) { start(); }

  /// False where communication moves nothing. Then what decides where a rank reads and writes must not come from
  /// others.
  [[nodiscard]] virtual bool has_peers() const { return true; }

  /// Makes progress on all communicators of this rank, without blocking.
  virtual void poll() = 0;

  /// Bytes that this rank has sent so far, per group, counted where the transport copies (in a trace: by the same
  /// closed forms). Direct algorithms: a rank sends its part of the sum's shards to their owners, and its own shard to
  /// everybody: 2 (n - 1) / n of an all-reduced buffer.
  [[nodiscard]] virtual std::map<Group, std::int64_t> sent_bytes() const = 0;

  /// Makes every wait of every rank throw Failure with this sentence. Called by a rank that unwinds.
  virtual void abort(const std::string& reason) = 0;

  /// The same rank and mesh for tensors in device memory, which `transport` moves. Both meshes fail together. This one
  /// and the transport must outlive it. Null where ranks share no memory.
  [[nodiscard]] virtual std::unique_ptr<Mesh> for_device(DeviceTransport& /*transport*/) { return nullptr; }

  /// Where in the model this rank is, for sentences about failures: a layer that communicates says so before and after,
  /// and before each of its parts. After an exception the rank is still there.
  virtual void enter_layer(std::string_view layer) { layer_ = layer, part_ = {}; }
  virtual void enter_part(LayerPart part) { part_ = part; }
  void leave_layer() { enter_layer({}); }
  [[nodiscard]] std::string_view layer() const { return layer_; }  // empty: in no such layer
  /// "model.layers.3.self_attn, hop 2 of the ring"; empty: in no such layer.
  [[nodiscard]] std::string place_in_model() const;

  /// Binds ranks that take turns on the cores of one process, each turn to a separate core. Called by every rank;
  /// without turns nothing happens.
  virtual void bind_turns() {}

 private:
  MeshShape shape_;
  int rank_;
  std::string layer_;
  LayerPart part_;
};

}  // namespace echelon
