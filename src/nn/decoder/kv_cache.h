// The keys and values of the positions that one decoder block has seen, for generation.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// [B, most positions, kv heads of this rank, head_dim] each.
struct KvCache {
  Tensor k, v;
};

}  // namespace echelon
