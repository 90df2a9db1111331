// A test transport around another one: results become visible only after the wait, and buffers that belong to the
// transport are checked.
//
// From the start of an operation until wait() returns or poll() says done,
//     - what it writes is poison in the caller's memory: NaN in floating point, 0x7f7f7f7f in int32. A read that
//       comes before the wait is found by its values;
//     - what the caller writes into a buffer of the operation, an input or an output, makes the wait throw Failure
//       with the operation and the place. Not found is
//       a write of the same bits, and one that is taken back before the wait;
//     - poll() says done some calls late, at random by the seed.
// Inputs stay readable, since no transport writes them. The inner transport works on copies and starts at once, so
// nothing deadlocks that did not before. A Pending that is dropped is found by the inner transport.
#pragma once

#include "comm/mesh.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>

namespace echelon {

class DelayedMesh final : public Mesh {
 public:
  /// `inner` must outlive it. Host memory only.
  DelayedMesh(Mesh& inner, std::uint64_t seed);
  ~DelayedMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override { inner_.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return inner_.sent_bytes(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void enter_layer(std::string_view layer) override {
    Mesh::enter_layer(layer);
    inner_.enter_layer(layer);
  }
  void enter_part(LayerPart part) override {
    Mesh::enter_part(part);
    inner_.enter_part(part);
  }

 private:
  class DelayedComm;

  Mesh& inner_;
  std::mt19937_64 random_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

}  // namespace echelon
