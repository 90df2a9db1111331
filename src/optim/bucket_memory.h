// The state of a bucket: which flat buffers it has, and their memory.
#pragma once

#include "optim/bucket.h"

namespace echelon {

enum class StateRole : std::uint8_t { param, grad, master, m, v };

/// One buffer of a bucket's state.
struct StateBuffer {
  StateRole role{};
  std::size_t bucket = 0;
  DType dtype{};
  Range range;  // of the bucket: all of it, or the owned part
};

/// The memory of one bucket's state. master is empty without one.
struct BucketMemory {
  Tensor param, grad, master, m, v;

  [[nodiscard]] Tensor& of(StateRole role) {
    switch (role) {
      case StateRole::param: return param;
      case StateRole::grad: return grad;
      case StateRole::master: return master;
      case StateRole::m: return m;
      case StateRole::v: break;
    }
    return v;
  }
};

}  // namespace echelon
