// A lane of the device, and marks on it.
#pragma once

#include "cuda/device/status.h"

#include <utility>

namespace echelon::cuda {

/// A point in a stream's work.
class Event {
 public:
  enum class Kind : bool { mark, time };
  explicit Event(Kind kind = Kind::mark) {
    check(cudaEventCreateWithFlags(&event_, kind == Kind::mark ? cudaEventDisableTiming : cudaEventDefault),
          "an event");
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }
  /// Whether its last record was reached, with all that was enqueued before; never blocks. Throws Failure if any of
  /// that failed.
  [[nodiscard]] bool is_reached() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error != cudaErrorNotReady) check(error, "work on the device");
    return error == cudaSuccess;
  }
  /// Blocks the host until then.
  void synchronize() const { check(cudaEventSynchronize(event_), "work on the device"); }
  /// Of two that tell the time, both reached.
  [[nodiscard]] float milliseconds_since(const Event& begin) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "a time on the device");
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work that is enqueued runs in its order.
class Stream {
 public:
  enum class Priority : bool { normal, high };
  explicit Stream(Priority priority = Priority::normal) {
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::high ? greatest : least),
          "a stream");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void record(const Event& event) { check(cudaEventRecord(event.get(), stream_), "a mark on a stream"); }
  /// What is enqueued from now on runs after the event's last record.
  void wait(const Event& event) { check(cudaStreamWaitEvent(stream_, event.get(), 0), "a wait for a mark"); }
  /// Whether all that was enqueued has run; never blocks. Throws Failure if any of it failed.
  [[nodiscard]] bool is_idle() const {
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error != cudaErrorNotReady) check(error, "work on the device");
    return error == cudaSuccess;
  }
  /// Blocks the host until all that was enqueued has run. Throws Failure if any of it failed.
  void synchronize() { check(cudaStreamSynchronize(stream_), "work on the device"); }
  /// What is enqueued is written down for a graph, and nothing may be waited for.
  [[nodiscard]] bool is_captured() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "whether a stream is captured");
    return status != cudaStreamCaptureStatusNone;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace echelon::cuda
