// The gradients of keys and values where tensor-parallel ranks share kv heads: each rank has the part that comes from
// its own query heads. One rank computes every part alone, with the gradient of the other heads' results set to zero.
#pragma once

#include "engine/param_pieces.h"
#include "ops/ops.h"
#include "spec/model_spec.h"
#include "tensor/arena.h"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace echelon {

class KvParts {
 public:
  KvParts(Ops& ops, const ModelSpec& model, int num_replicas) : ops_(ops), model_(model), num_replicas_(num_replicas) {}

  /// Of the gradients of keys and values that this operation writes.
  void compute(const AttentionBackwardArgs& args);
  /// Turns the parts as these gradients are turned in place.
  void turn(const RopeArgs& args);
  /// [tokens, replicas, columns of all kv heads]; none if `gradient` is not the last that was computed.
  [[nodiscard]] std::optional<std::vector<double>> of(const Tensor& gradient) const;

 private:
  struct Gradient {
    Tensor whole;
    std::vector<Tensor> parts;  // of each replica
  };
  /// The gradient of the result with zeros for all query heads but those of one replica.
  void keep_heads(const Tensor& dout_BTHC, int replica, const Tensor& out) const;

  Ops& ops_;
  const ModelSpec& model_;
  int num_replicas_;
  std::unique_ptr<Arena> memory_;
  std::array<Gradient, 2> gradients_;  // of keys and values
};

}  // namespace echelon
