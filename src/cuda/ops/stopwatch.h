// How long a piece of work takes on the device.
#pragma once

#include "cuda/device/stream.h"

namespace echelon::cuda {

class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Of what `enqueue` puts on the stream; waits for it.
  template <class Enqueue>
  [[nodiscard]] float milliseconds_of(Stream& stream, Enqueue&& enqueue) {
    check(cudaEventRecord(begin_, stream.get()), "a mark on a stream");
    enqueue();
    check(cudaEventRecord(end_, stream.get()), "a mark on a stream");
    check(cudaEventSynchronize(end_), "work on the device");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "a time on the device");
    return milliseconds;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace echelon::cuda
