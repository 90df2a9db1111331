// How long a piece of work takes on the device.
#pragma once

#include "cuda/device/device.h"

namespace echelon::cuda {

class Stopwatch {
 public:
  /// Of what `enqueue` puts on the compute stream; waits for it.
  template <class Enqueue>
  [[nodiscard]] float milliseconds_of(Device& device, Enqueue&& enqueue) {
    device.compute().record(begin_);
    enqueue();
    device.compute().record(end_);
    device.await(end_);
    return end_.milliseconds_since(begin_);
  }

 private:
  Event begin_{Event::Kind::time}, end_{Event::Kind::time};
};

}  // namespace echelon::cuda
